"""Computing with several processes. See :mod:`stopgrad.scale.distributed`."""

from stopgrad.scale.distributed import *
