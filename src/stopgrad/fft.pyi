from stopgrad.ops.namespaces.fft import *
