"""The public functions of all families; importing this module defines every operation."""

from __future__ import annotations

from stopgrad.ops import operators as _operators  # noqa: F401 - gives outputs Python's operators
from stopgrad.ops.elementwise.arithmetic import *
from stopgrad.ops.elementwise.compare import *
from stopgrad.ops.elementwise.composite import *
from stopgrad.ops.elementwise.convert import *
from stopgrad.ops.elementwise.elementary import *
from stopgrad.ops.elementwise.floating import *
from stopgrad.ops.elementwise.powers import *
from stopgrad.ops.elementwise.rounding import *
from stopgrad.ops.elementwise.trigonometric import *
from stopgrad.ops.elementwise.zeros import *
from stopgrad.ops.fourier import (  # noqa: F401 - defines operations, whose functions stand in sg.xp.fft
    discrete_fourier as _transforms,
    frequencies as _frequencies,
    planes as _planes,
)
from stopgrad.ops.gates.custom import *
from stopgrad.ops.gates.scaling import *
from stopgrad.ops.gates.stopping import *
from stopgrad.ops.indexing.dynamic import *
from stopgrad.ops.indexing.gather import *
from stopgrad.ops.indexing.indexed_updates import *
from stopgrad.ops.indexing.masks import *
from stopgrad.ops.indexing.positions import *
from stopgrad.ops.indexing.scatters import *
from stopgrad.ops.indexing.slices import *
from stopgrad.ops.linalg.contractions import *
from stopgrad.ops.linalg.determinants import *
from stopgrad.ops.linalg.diagonals import *
from stopgrad.ops.linalg.eigenvalues import *
from stopgrad.ops.linalg.exponential import *
from stopgrad.ops.linalg.factorizations import *
from stopgrad.ops.linalg.matrices import *
from stopgrad.ops.linalg.matrix_functions import *
from stopgrad.ops.linalg.norms import *
from stopgrad.ops.linalg.products import *
from stopgrad.ops.linalg.solvers import *
from stopgrad.ops.linalg.spectra import *
from stopgrad.ops.losses.cross_entropy import *
from stopgrad.ops.losses.objectives import *
from stopgrad.ops.losses.ranking import *
from stopgrad.ops.neural.activations import *
from stopgrad.ops.neural.attention import *
from stopgrad.ops.neural.convolution import *
from stopgrad.ops.neural.embedding import *
from stopgrad.ops.neural.filters import *
from stopgrad.ops.neural.normalization import *
from stopgrad.ops.neural.pools import *
from stopgrad.ops.neural.resize import *
from stopgrad.ops.neural.units import *
from stopgrad.ops.order.bins import *
from stopgrad.ops.order.sets import *
from stopgrad.ops.order.sorting import *
from stopgrad.ops.random.distributions import *
from stopgrad.ops.random.draws import *
from stopgrad.ops.random.keys import *
from stopgrad.ops.random.rejection import *
from stopgrad.ops.random.sampling import *
from stopgrad.ops.reductions.associative import *
from stopgrad.ops.reductions.cumulative import *
from stopgrad.ops.reductions.recurrence import *
from stopgrad.ops.reductions.reduce import *
from stopgrad.ops.reductions.segments import *
from stopgrad.ops.shapes.grids import *
from stopgrad.ops.shapes.join import *
from stopgrad.ops.shapes.moving import *
from stopgrad.ops.shapes.ranges import *
from stopgrad.ops.shapes.reshape import *
from stopgrad.ops.special.bessel import *
from stopgrad.ops.special.gamma import *
from stopgrad.ops.special.incomplete import *
from stopgrad.ops.structural import (  # noqa: F401 - defines operations without public functions
    checks as _checks,
    foreign as _foreign,
)
from stopgrad.ops.structural.effects import *
from stopgrad.ops.structural.groups import *
from stopgrad.ops.structural.sharding import *
from stopgrad.ops.structural.sources import *
