"""stopgrad: graphs of typed operations whose gradients you can cut, see, check, run and ship.

Examples:
    >>> import stopgrad as sg
    >>> sg.grad(lambda x: x * sg.stop_gradient(x))(3.0)
    array(3., dtype=float32)
"""

from __future__ import annotations

import sys as _sys
from inspect import ismodule as _is_module
from typing import TYPE_CHECKING

from stopgrad.base import errors as errors
from stopgrad.base.errors import (
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
from stopgrad.base.hints import hint_for as _hint_for
from stopgrad.base.later import imported as _imported
from stopgrad.base.types import (
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
from stopgrad.graph.graph import Graph as Graph, Operand as Operand, Operation as Operation, Output as Output
from stopgrad.graph.op import Status as Status
from stopgrad.graph.scope import (
    Scope as Scope,
    name_scope as name_scope,
)

if TYPE_CHECKING:  # For readers and type checkers. While running, each is imported when it is first used.
    from stopgrad import (
        data as data,
        distributed as distributed,
        engines as engines,
        flow as flow,
        ops as ops,
        optimizers as optimizers,
        xp as xp,
    )
    from stopgrad.base.trees import (
        tree_flatten as tree_flatten,
        tree_leaves as tree_leaves,
        tree_map as tree_map,
        tree_map_with_path as tree_map_with_path,
        tree_reduce as tree_reduce,
        tree_structure as tree_structure,
        tree_unflatten as tree_unflatten,
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
        assert_blocked as assert_blocked,
        assert_flows as assert_flows,
        assert_only_flows as assert_only_flows,
    )
    from stopgrad.interop.worlds import (
        ablate as ablate,
        check_gradients as check_gradients,
        explain as explain,
        trace_nan as trace_nan,
    )
    from stopgrad.ops.functions import *
    from stopgrad.ops.gates.stopping import StopGradient as StopGradient
    from stopgrad.ops.namespaces import (
        fft as fft,
        linalg as linalg,
        losses as losses,
        nn as nn,
        random as random,
        tree as tree,
    )
    from stopgrad.ops.xp import (
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
        permute_dims as permute_dims,
        positive as positive,
        remainder as remainder,
        result_type as result_type,
    )
    from stopgrad.run.function import (
        Function as Function,
        function as function,
    )
    from stopgrad.run.session import Session as Session
    from stopgrad.scale.meshes import Mesh as Mesh
    from stopgrad.train.adapters import Adapted as Adapted, add_lora as add_lora
    from stopgrad.train.checkpoints import Checkpoints as Checkpoints
    from stopgrad.train.monitoring.sessions import monitor as monitor
    from stopgrad.train.tree_files import load as load, save as save
    from stopgrad.transforms.batching.jacobians import hessian as hessian, jacobian as jacobian
    from stopgrad.transforms.batching.vmap import vmap as vmap
    from stopgrad.transforms.control import (
        checkpoint as checkpoint,
        cond as cond,
        fori_loop as fori_loop,
        map_fn as map_fn,
        scan as scan,
        switch as switch,
        while_loop as while_loop,
    )
    from stopgrad.transforms.control.ctc import ctc_loss as ctc_loss
    from stopgrad.transforms.control.recurrent import (
        gru as gru,
        gru_cell as gru_cell,
        lstm as lstm,
        lstm_cell as lstm_cell,
        simple_rnn as simple_rnn,
        simple_rnn_cell as simple_rnn_cell,
    )
    from stopgrad.transforms.gradients.custom_rules import custom_jvp as custom_jvp, custom_vjp as custom_vjp
    from stopgrad.transforms.gradients.reverse import (
        Gradients as Gradients,
        gradients as gradients,
    )
    from stopgrad.transforms.gradients.transforms import (
        grad as grad,
        hvp as hvp,
        jvp as jvp,
        value_and_grad as value_and_grad,
        vjp as vjp,
    )

_LATER = {
    "": "data distributed engines flow ops optimizers xp",
    "base.trees": "tree_flatten tree_leaves tree_map tree_map_with_path tree_reduce tree_structure "
    "tree_unflatten",
    "flow": "Ablation Checked Cut Flow NanInput NanNote NanSite NanTrace Reach assert_blocked "
    "assert_flows assert_only_flows",
    "interop.worlds": "ablate check_gradients explain trace_nan",
    "ops.gates.stopping": "StopGradient",
    "ops.namespaces": "fft linalg losses nn random tree",
    "ops.xp": "astype bitwise_invert bitwise_left_shift bitwise_right_shift broadcast_arrays "
    "broadcast_shapes can_cast cumulative_prod cumulative_sum finfo floor_divide from_dlpack "
    "iinfo isdtype isfinite isinf isnan permute_dims positive remainder result_type",
    "run.function": "Function function",
    "run.session": "Session",
    "scale.meshes": "Mesh",
    "train.adapters": "Adapted add_lora",
    "train.checkpoints": "Checkpoints",
    "train.monitoring.sessions": "monitor",
    "train.tree_files": "load save",
    "transforms.batching.jacobians": "hessian jacobian",
    "transforms.batching.vmap": "vmap",
    "transforms.control": "checkpoint cond fori_loop map_fn scan switch while_loop",
    "transforms.control.ctc": "ctc_loss",
    "transforms.control.recurrent": "gru gru_cell lstm lstm_cell simple_rnn simple_rnn_cell",
    "transforms.gradients.custom_rules": "custom_jvp custom_vjp",
    "transforms.gradients.reverse": "Gradients gradients",
    "transforms.gradients.transforms": "grad hvp jvp value_and_grad vjp",
}
"""The names by the modules that define them, as above; those under "" are modules of this package.

Functions of operations are not among them: all other names are looked up in ``ops.functions``.
"""

_UNLISTED = {"load_ipython_extension": "tools.notebook"}
"""What others look for in the package, and users do not."""

bool = bool_

_sys.modules[f"{__name__}.errors"] = errors  # Their public name; tracebacks show it.

__version__ = "0.2.0"

if not TYPE_CHECKING:  # Type checkers are to report unknown names.
    _MODULE = {name: module for module, names in _LATER.items() for name in names.split()}
    _HERE = [name for name, value in globals().items() if name[0] != "_" and not _is_module(value)]
    _HERE = [name for name in _HERE if name not in {"TYPE_CHECKING", "annotations"}]

    def __getattr__(name):
        module = _MODULE.get(name, _UNLISTED.get(name))
        if module is not None:
            value = _imported(f"{__name__}.{module or name}")
            if module:
                value = globals()[name] = getattr(value, name)
            return value
        if name[0] != "_" or name == "__all__":
            names = _names()
            if name == "__all__":
                return [*names, "errors", *_LATER[""].split()]
            if name in names:
                return globals()[name]
            # With a name, Python adds no hint of its own.
            raise AttributeError(_hint_for(name, names), name=name)
        raise AttributeError(f"module 'stopgrad' has no attribute {name!r}")

    class _Spaces:
        """Finds ``stopgrad.random`` and the like, which stand in a package below: one module, two names."""

        def find_spec(self, name, path=None, target=None):
            package, _, space = name.rpartition(".")
            return type(__spec__)(name, self) if package == __name__ and space in _SPACES else None

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            _sys.modules[module.__name__] = __getattr__(module.__name__.rpartition(".")[2])

    _SPACES = _LATER["ops.namespaces"].split()
    _sys.meta_path.append(_Spaces())

    def __dir__():
        return sorted({*_names(), *globals(), *_MODULE})

    def _names():
        """All public names of the package but modules; imports the functions of operations."""
        functions = vars(_imported("stopgrad.ops.functions"))
        functions = {name: f for name, f in functions.items() if name[0] != "_" and name != "annotations"}
        globals().update(functions)
        return [*_HERE, *functions, *[name for name, module in _MODULE.items() if module]]
