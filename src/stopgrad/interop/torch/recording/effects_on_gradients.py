"""What PyTorch's functions do to gradients, where autograd does not say so: tables by name."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from torch.overrides import resolve_name

from stopgrad.interop.torch import internals

_VARIABLE = "torch.Tensor."


class Act(Enum):
    """What the recorder does about a call."""

    NOTHING = "nothing"  # The call makes no tensor.
    RECORD = "an operation"
    FACTORY = "an operation that looks at no values"
    STOP = "a stop"
    LEAVE = "values leave for Python"
    BACKWARD = "gradients into leaves"
    GRAD = "gradients returned"
    MODE = "gradients on or off"
    REQUIRE = "a leaf begins or ends to require a gradient"
    ATTACH = "a tensor gets other memory"
    HOOK = "a hook may change the gradient"
    GRADIENT = "the gradient of a leaf is read, set or taken away"


class Call:
    """A function of PyTorch.

    Attributes:
        name: as users write it.
        act: what is done about it.
        why: of a stop, the reason of the cut, as reports name it.
        flat: whether its gradient is zero everywhere.
        writes: whether it writes into its first argument.
        overwrites: whether it overwrites its first argument, whatever that was.
        alike: whether it takes only shape, dtype or device of its other tensors, and no values.
        dual: whether its second tensor is a tangent, which the result carries beside the value of the first.
        apart: whether each result depends only on the tensor at the same position of a list of tensors.
        plain: whether it is an operation of which none of the last five is so.
        classifies: whether it is a loss that leaves classes out.
    """

    __slots__ = (
        "act",
        "alike",
        "apart",
        "classifies",
        "dual",
        "flat",
        "name",
        "overwrites",
        "plain",
        "why",
        "writes",
    )

    name: str
    act: Act
    why: str
    flat: bool
    alike: bool
    dual: bool
    apart: bool
    writes: bool
    overwrites: bool
    classifies: bool
    plain: bool

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = _name(function)
        short = self.name.removeprefix(_VARIABLE).removeprefix("torch.")
        self.act = _act(short, self.name)
        self.why = _REASONS.get(short, short)
        plain = short.removesuffix("_") if not short.endswith("__") else short
        self.flat = plain in FLAT
        many = short.startswith(("_foreach_", "_fused_"))
        self.alike = short in ALIKE
        self.dual = short.endswith("_make_dual")
        self.apart = many or short.rpartition(".")[2] in _EACH
        self.writes = not many and (short in _IN_PLACE or (short.endswith("_") and not short.endswith("__")))
        self.overwrites = short in OVERWRITES
        self.classifies = short in _CLASSIFIES
        special = self.alike or self.dual or self.apart or self.writes or self.overwrites
        self.plain = self.act is Act.RECORD and not special


CALLS: dict[Any, Call] = {}
"""What is known already of functions."""


def call_of(function: Callable[..., Any]) -> Call:
    """How a function is treated."""
    call = CALLS.get(function)
    if call is None:
        call = CALLS[function] = Call(function)
    return call


def _name(function: Callable[..., Any]) -> str:
    qualified = resolve_name(function)
    if qualified is None:
        if function is internals.set_grad_enabled:
            return "torch.set_grad_enabled"
        module = getattr(function, "__module__", None) or "torch"
        name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or str(function)
        qualified = f"{module}.{name}"
    return str(qualified).replace(internals.UNNAMED, "torch.")


def _act(short: str, name: str) -> Act:
    act = _ACTS.get(short)
    if act is not None:
        return act
    if short.endswith((".__get__", ".__set__", ".__delete__")):
        return Act.RECORD if short in _PROPERTIES else Act.NOTHING
    if short in _QUESTIONS or short.startswith(("is_", "profiler.")):
        return Act.NOTHING
    if short in FACTORIES or short.endswith("_like") or short.startswith("new_"):
        return Act.FACTORY
    return Act.RECORD


_CLASSIFIES = frozenset(["nn.functional.cross_entropy", "nn.functional.nll_loss"])
"""Losses with an ``ignore_index``."""

_EACH = frozenset(["broadcast_tensors", "atleast_1d", "atleast_2d", "atleast_3d", "meshgrid", "_unpack_dual"])
"""Functions that return each of their tensors by itself; ``_unpack_dual`` returns value and tangent."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ACTS = {
    "set_grad_enabled": Act.MODE,
    "backward": Act.BACKWARD,
    "autograd.backward": Act.BACKWARD,
    "autograd.grad": Act.GRAD,
    "requires_grad_": Act.REQUIRE,
    "requires_grad.__set__": Act.REQUIRE,
    "data.__set__": Act.ATTACH,
    "set_": Act.ATTACH,
    "register_hook": Act.HOOK,
    "grad.__get__": Act.GRADIENT,
    "grad.__set__": Act.GRADIENT,
    "grad.__delete__": Act.GRADIENT,
    **dict.fromkeys(
        ["detach", "detach_", "data.__get__", "__deepcopy__", "new_tensor", "tensor", "detach_copy"], Act.STOP
    ),
    **dict.fromkeys(["item", "tolist", "numpy", "__float__", "__complex__", "__array__"], Act.LEAVE),
}

_REASONS = {
    "data.__get__": ".data",
    "data.__set__": "assigned to .data",
    "__deepcopy__": "copy.deepcopy",
    "new_tensor": "new_tensor makes a copy without history",
    "tensor": "torch.tensor makes a copy without history",
    "item": ".item()",
    "tolist": ".tolist()",
    "numpy": ".numpy()",
    "__array__": "numpy.asarray",
    "__float__": "float(...)",
    "__complex__": "complex(...)",
    "set_": "set_",
}

_PROPERTIES = frozenset({f"{name}.__get__" for name in ("T", "mT", "H", "mH", "real", "imag")})
"""Properties of tensors that are operations."""

_QUESTIONS = _words(
    """size dim stride numel nelement ndimension element_size storage untyped_storage storage_offset data_ptr
    get_device register_post_accumulate_grad_hook retain_grad __len__ __repr__ __hash__
    __format__
    __bool__ __int__ __index__ __contains__ __dir__ __reduce_ex__ __setstate__ has_names has_torch_function
    _version nbytes itemsize equal allclose share_memory_ pin_memory can_cast result_type numel
    broadcast_shapes get_default_dtype manual_seed"""
)
"""Functions that return no tensor."""

_IN_PLACE = _words(
    """__setitem__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__
    __ixor__ __ilshift__ __irshift__"""
)
"""Operators that write into their first operand."""

FACTORIES = _words(
    """zeros ones empty full arange linspace logspace eye rand randn randint randperm empty_strided
    tril_indices triu_indices"""
)

ALIKE = _words("view_as expand_as reshape_as type_as to resize_as_")
"""Functions that make their first tensor like another, whose values play no part."""

FLAT = _words(
    """round floor ceil trunc fix sign sgn heaviside bernoulli floor_divide __floordiv__ __rfloordiv__
    uniform exponential geometric cauchy log_normal random"""
)
"""Functions whose gradient is zero everywhere, and their in-place forms."""

OVERWRITES = _words(
    """zero_ fill_ copy_ normal_ uniform_ exponential_ geometric_ cauchy_ log_normal_ random_
    bernoulli_"""
)
"""Methods that overwrite a tensor, whatever it held before."""

FLAT_NODES = _words(
    """RoundBackward FloorBackward CeilBackward TruncBackward SignBackward SgnBackward
    HeavisideBackward BernoulliBackward NormalBackward UniformBackward ExponentialBackward GeometricBackward
    CauchyBackward LogNormalBackward RandomBackward ZeroBackward
    EqBackward NeBackward GtBackward GeBackward LtBackward LeBackward"""
)
"""Autograd nodes whose gradients are zero everywhere."""

FLAT_EDGES = {"CopyBackwards": 0, "FillBackward": 0}
"""Autograd nodes of which one edge, given by its position, has a gradient of zero everywhere."""
