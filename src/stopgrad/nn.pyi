from stopgrad.ops.namespaces.nn import *
