from stopgrad.ops.namespaces.linalg import *
