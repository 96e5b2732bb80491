from stopgrad.ops.namespaces.losses import *
