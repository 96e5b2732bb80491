from stopgrad.ops.namespaces.tree import *
