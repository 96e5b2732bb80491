"""stopgrad: graphs of typed operations whose gradients you can cut, see, check, run and ship.

Examples:
    >>> import stopgrad as sg
    >>> sg.grad(lambda x: x * sg.stop_gradient(x))(3.0)
    array(3., dtype=float32)
"""

from __future__ import annotations

from inspect import ismodule as _is_module
from typing import TYPE_CHECKING

from stopgrad import (
    data as data,
    distributed as distributed,
    engines as engines,
    interchange as _interchange,  # noqa: F401 - gives graphs their text and file forms
    ops as ops,
    optimizers as optimizers,
    xp as xp,
)
from stopgrad.adapters import Adapted as Adapted, add_lora as add_lora
from stopgrad.autodiff.reverse import (
    Gradients as Gradients,
    gradients as gradients,
)
from stopgrad.autodiff.transforms import (
    grad as grad,
    hvp as hvp,
    jvp as jvp,
    value_and_grad as value_and_grad,
    vjp as vjp,
)
from stopgrad.batching.jacobians import hessian as hessian, jacobian as jacobian
from stopgrad.batching.vmap import vmap as vmap
from stopgrad.checkpoints import Checkpoints as Checkpoints
from stopgrad.control import (
    checkpoint as checkpoint,
    cond as cond,
    fori_loop as fori_loop,
    map_fn as map_fn,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from stopgrad.control.ctc import *
from stopgrad.control.recurrent import *
from stopgrad.errors import (
    ArgumentError as ArgumentError,
    AxisError as AxisError,
    CheckpointError as CheckpointError,
    DefinitionError as DefinitionError,
    DistributedError as DistributedError,
    DTypeError as DTypeError,
    EngineError as EngineError,
    FeedError as FeedError,
    FileError as FileError,
    FlowError as FlowError,
    GradientError as GradientError,
    GraphError as GraphError,
    InternalError as InternalError,
    MissingFileError as MissingFileError,
    ShapeError as ShapeError,
    StopgradError as StopgradError,
)
from stopgrad.flow import (
    Ablation as Ablation,
    Checked as Checked,
    Cut as Cut,
    Flow as Flow,
    NanInput as NanInput,
    NanNote as NanNote,
    NanSite as NanSite,
    NanTrace as NanTrace,
    Reach as Reach,
    ablate as ablate,
    assert_blocked as assert_blocked,
    assert_flows as assert_flows,
    assert_only_flows as assert_only_flows,
    check_gradients as check_gradients,
    explain as explain,
    trace_nan as trace_nan,
)
from stopgrad.function import (
    Function as Function,
    function as function,
)
from stopgrad.graph import Graph as Graph, Operand as Operand, Operation as Operation, Output as Output
from stopgrad.hints import hint_for as _hint_for
from stopgrad.meshes import Mesh as Mesh
from stopgrad.op import Status as Status
from stopgrad.ops import (
    foreign as _foreign,  # noqa: F401 - defines operations that have no public functions
    operators as _operators,  # noqa: F401 - gives outputs Python's operators
)
from stopgrad.ops.activations import *
from stopgrad.ops.arithmetic import *
from stopgrad.ops.associative import *
from stopgrad.ops.attention import *
from stopgrad.ops.bessel import *
from stopgrad.ops.bins import *
from stopgrad.ops.compare import *
from stopgrad.ops.composite import *
from stopgrad.ops.convert import *
from stopgrad.ops.convolution import *
from stopgrad.ops.custom import *
from stopgrad.ops.data import *
from stopgrad.ops.determinants import *
from stopgrad.ops.distributions import *
from stopgrad.ops.dynamic import *
from stopgrad.ops.eigenvalues import *
from stopgrad.ops.elementary import *
from stopgrad.ops.embedding import *
from stopgrad.ops.exponential import *
from stopgrad.ops.factorizations import *
from stopgrad.ops.filters import *
from stopgrad.ops.floating import *
from stopgrad.ops.fourier import *
from stopgrad.ops.fourier_planes import *
from stopgrad.ops.frequencies import *
from stopgrad.ops.gates import *
from stopgrad.ops.gates import StopGradient as StopGradient
from stopgrad.ops.grids import *
from stopgrad.ops.groups import *
from stopgrad.ops.incomplete import *
from stopgrad.ops.index import *
from stopgrad.ops.join import *
from stopgrad.ops.keys import *
from stopgrad.ops.linalg import *
from stopgrad.ops.losses import *
from stopgrad.ops.masks import *
from stopgrad.ops.matrices import *
from stopgrad.ops.matrix_functions import *
from stopgrad.ops.moving import *
from stopgrad.ops.normalization import *
from stopgrad.ops.norms import *
from stopgrad.ops.objectives import *
from stopgrad.ops.order import *
from stopgrad.ops.pools import *
from stopgrad.ops.positions import *
from stopgrad.ops.powers import *
from stopgrad.ops.products import *
from stopgrad.ops.random import *
from stopgrad.ops.ranges import *
from stopgrad.ops.ranking import *
from stopgrad.ops.recurrence import *
from stopgrad.ops.reduce import *
from stopgrad.ops.rejection import *
from stopgrad.ops.resize import *
from stopgrad.ops.rounding import *
from stopgrad.ops.running import *
from stopgrad.ops.sampling import *
from stopgrad.ops.scaling import *
from stopgrad.ops.scatters import *
from stopgrad.ops.segments import *
from stopgrad.ops.sets import *
from stopgrad.ops.shape import *
from stopgrad.ops.sharding import *
from stopgrad.ops.slices import *
from stopgrad.ops.solvers import *
from stopgrad.ops.special import *
from stopgrad.ops.spectra import *
from stopgrad.ops.trigonometric import *
from stopgrad.ops.units import *
from stopgrad.ops.updates import *
from stopgrad.ops.zeros import *
from stopgrad.scope import (
    Scope as Scope,
    name_scope as name_scope,
)
from stopgrad.session import Session as Session
from stopgrad.types import (
    Dim as Dim,
    DType as DType,
    TensorType as TensorType,
    bfloat16 as bfloat16,
    bool_ as bool_,
    complex64 as complex64,
    complex128 as complex128,
    dim as dim,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from stopgrad.xp import (
    astype as astype,
    bitwise_invert as bitwise_invert,
    bitwise_left_shift as bitwise_left_shift,
    bitwise_right_shift as bitwise_right_shift,
    broadcast_arrays as broadcast_arrays,
    broadcast_shapes as broadcast_shapes,
    can_cast as can_cast,
    cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum,
    finfo as finfo,
    floor_divide as floor_divide,
    from_dlpack as from_dlpack,
    iinfo as iinfo,
    isdtype as isdtype,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    methods as _methods,  # noqa: F401 - gives outputs the methods of arrays
    permute_dims as permute_dims,
    positive as positive,
    remainder as remainder,
    result_type as result_type,
)

bool = bool_

if not TYPE_CHECKING:  # To a type checker, what is not there is an error.

    def __getattr__(name):
        if name.startswith("_"):
            raise AttributeError(f"module 'stopgrad' has no attribute {name!r}")
        names = [one for one, value in globals().items() if one[0] != "_" and not _is_module(value)]
        raise AttributeError(_hint_for(name, names))


__version__ = "0.1.0"
