from stopgrad.ops.namespaces.random import *
