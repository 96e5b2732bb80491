"""Functions of ours as functions that JAX traces, compiles, batches and differentiates."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from stopgrad.base.errors import ArgumentError, DTypeError, StopgradError
from stopgrad.base.types import Dim, dtype_of
from stopgrad.graph.arguments import Constant, argument_names, operation_name
from stopgrad.graph.build import as_output, emit
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import is_tensor, shorten
from stopgrad.interop.jax.callable.computations import Computation
from stopgrad.interop.jax.callable.leaves import Leaves, is_array, is_output, leaves_of
from stopgrad.interop.jax.callable.narrow import are_wide_types_enabled, narrowed
from stopgrad.ops.structural.sources import Placeholder
from stopgrad.run.compiling import CACHE_SIZE, cached
from stopgrad.run.traced import check_outputs
from stopgrad.transforms.gradients.transform_arguments import ArgumentGraph

F = TypeVar("F", bound=Callable[..., Any])


class _Traced(NamedTuple):
    """A function traced for arguments of some types.

    Attributes:
        computation: from the arrays among the arguments to those among the results; None if no result is
            an array.
        results: the structure of what the function returned.
        others: the leaves of the result, with a mark in place of each array.
    """

    computation: Computation | None
    results: Leaves
    others: list[Any]

    def __call__(self, arrays: Sequence[Any]) -> Any:
        computed = iter(() if self.computation is None else self.computation(*arrays))
        return self.results.rebuilt([next(computed) if x is _RESULT else x for x in self.others])


_RESULT = object()


def callable(f: F, *, cache_size: int = CACHE_SIZE) -> F:
    """A function of ours for JAX to trace: for ``jax.jit``, ``jax.grad``, ``jax.vmap``, ``lax.scan``.

    It is traced to a graph for the types of its arguments, and JAX computes that graph. Where JAX asks for a
    derivative, of any order, forwards (``jax.jvp``, ``jax.jacfwd``) or backwards (``jax.grad``,
    ``jax.jacrev``), it gets the gradient that :func:`stopgrad.gradients` generates: gates are obeyed, nothing
    is generated for arguments that JAX does not differentiate, and forward values that the gradient uses
    are kept, not computed again.

    Args:
        f: a function of nested structures of tensors, written with stopgrad's operations; a
            ``sg.function``; or an imported model.
        cache_size: for how many signatures the traced function is kept.

    Returns:
        A function with f's arguments and results, on JAX's arrays and pytrees.

    Arrays are traced, whatever their type. Python's floats are traced too, and take the dtype of the first
    floating-point array among the arguments. All other arguments (integers, booleans, strings) are passed
    to f as they are, and must have a hash; under ``jax.jit`` JAX makes arrays of numbers, unless they are
    ``static_argnums``. Inside of f, dtypes are promoted as NumPy promotes them; but if JAX has 64-bit
    types disabled, as by default, each is computed as the same type of 32 bits. Dataclasses that JAX
    does not know count as structures while JAX is not tracing. Gradients of complex tensors follow JAX's
    convention: they are the conjugates of ours.

    Forwards, a gate acts as in :func:`stopgrad.jvp`: ``clip_gradient`` as it does near a gradient of zero.

    Raises:
        ArgumentError: f is no function; an argument has no hash; f uses a traced value of JAX that is not one
            of its arguments.
        DTypeError: an argument has a type that stopgrad lacks.
        GradientError: JAX uses a gradient that is an error (:func:`stopgrad.prevent_gradient`).

    Examples:
        Gates in a JAX function:

        >>> import jax, jax.numpy as jnp, stopgrad.jax as sgj
        >>> clip = sgj.callable(lambda x: sg.clip_gradient(x, -1.0, 1.0))
        >>> reverse = sgj.callable(sg.reverse_gradient)
        >>> jax.jit(jax.grad(lambda x: jnp.sum(clip(x) ** 2) + reverse(x)[0]))(jnp.array([0.25, 3.0]))
        Array([-0.5,  1. ], dtype=float32)

        A loss with a target that must not be trained:

        >>> @sgj.callable
        ... def loss(params, x):
        ...     return sg.reduce_mean((x @ params["w"] - sg.stop_gradient(x @ params["v"])) ** 2.0)
        >>> params = {"w": jnp.ones((2, 1)), "v": jnp.zeros((2, 1))}
        >>> gradient = jax.grad(loss)(params, jnp.eye(2))
        >>> print(gradient["w"].T, gradient["v"].T)
        [[1. 1.]] [[0. 0.]]
    """
    if not builtins.callable(f):
        raise ArgumentError(f"callable: takes a function, not {shorten(f)}")
    name = getattr(f, "__name__", type(f).__name__)
    trace = cached(functools.partial(_traced, f, name), cache_size, "callable")

    def called(*args: Any, **kwargs: Any) -> Any:
        leaves = leaves_of((args, kwargs))
        if any(map(is_output, leaves.values)):
            return f(*args, **kwargs)  # Called on outputs, f is built in their graph.
        arrays, signature = _arguments(name, leaves)
        try:
            traced = trace(_Structure(leaves), signature, are_wide_types_enabled())
        except TypeError:
            _check_hashes(name, leaves, signature)
            raise
        return traced(arrays)

    return cast("F", functools.update_wrapper(called, f))


class _Structure:
    """The structure of arguments, compared and hashed by its key."""

    __slots__ = ("_key", "leaves")

    def __init__(self, leaves: Leaves) -> None:
        self._key = leaves.key
        self.leaves = leaves._replace(values=[])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _arguments(name: str, leaves: Leaves) -> tuple[list[Any], tuple[Any, ...]]:
    """The arrays among the arguments, and the signature: their types, and all other arguments."""
    numbers = [isinstance(x, (float, complex)) and not isinstance(x, np.generic) for x in leaves.values]
    converted = [
        jnp.asarray(x) if is_number or is_array(x) else x
        for x, is_number in zip(leaves.values, numbers, strict=True)
    ]
    strong = [x.dtype for x in converted if is_array(x) and not _is_weak(x)]
    float_dtype = next((d for d in strong if jnp.issubdtype(d, jnp.floating)), None)
    arrays: list[Any] = []
    signature: list[Any] = []
    for x in converted:
        if not is_array(x):
            signature.append(Constant.of(x))
            continue
        if _is_weak(x):  # A Python number takes the type of the arrays beside it.
            fits = float_dtype is not None and jnp.issubdtype(x.dtype, jnp.floating)
            x = jax.lax.convert_element_type(x, float_dtype if fits else x.dtype)
        arrays.append(x)
        signature.append((x.shape, x.dtype))
    return arrays, tuple(signature)


def _is_weak(x: object) -> bool:
    """Whether a JAX array is weakly typed."""
    return bool(getattr(x, "weak_type", False))


def _traced(
    f: Callable[..., Any], name: str, structure: _Structure, signature: Sequence[Any], wide: bool
) -> _Traced:
    """Call a function once on placeholders for the arrays among its arguments.

    *wide*, whether JAX has 64-bit types enabled, is only part of the cache's key.
    """
    graph, arguments = ArgumentGraph(), structure.leaves
    paths = _paths(f, arguments)
    with graph.as_default():
        leaves = [
            entry.value if isinstance(entry, Constant) else _stand_in(graph, name, path, *entry)
            for path, entry in zip(paths, signature, strict=True)
        ]
        args, kwargs = arguments.rebuilt(leaves)
        try:
            results = leaves_of(f(*args, **kwargs))
            outputs = [as_output(x, graph) for x in results.values if _is_result(x)]
        except Exception as error:
            if not isinstance(error.__context__ or error, jax.errors.TracerArrayConversionError):
                raise
            refusal = ArgumentError(
                f"{name} uses a value that JAX is tracing and that is none of its arguments; pass it as one"
            )
            refusal._place = getattr(error, "_place", refusal._place)
            raise refusal from None
    inputs = [x for x, entry in zip(leaves, signature, strict=True) if not isinstance(entry, Constant)]
    check_outputs(name, graph, outputs, name)
    others = [_RESULT if _is_result(x) else x for x in results.values]
    results = results._replace(values=[])
    if not outputs:
        return _Traced(None, results, others)
    inputs, outputs = narrowed(inputs, outputs)
    return _Traced(Computation(name, inputs, outputs), results, others)


def _stand_in(graph: ArgumentGraph, name: str, path: str, shape: Sequence[int], dtype: Any) -> Output:
    try:
        values = dtype_of(dtype), tuple(shape), ()
    except StopgradError:
        cure = "; pass jax.random.key_data(key)" if jnp.issubdtype(dtype, jax.dtypes.prng_key) else ""
        raise DTypeError(f"{name}: {path} is of JAX's type {dtype}, which stopgrad lacks{cure}") from None
    return emit(Placeholder, (), values, operation_name(path), graph).outputs[0]


def _paths(f: Callable[..., Any], leaves: Leaves) -> list[str]:
    """The paths of the leaves of ``(args, kwargs)``, such as ``"params.w"``."""
    count = 1 + max([path[1].idx for path in leaves.paths if path[0].idx == 0], default=-1)
    names = argument_names(f, count)
    paths = []
    for kind, which, *rest in leaves.paths:
        first = which.key if kind.idx else names[which.idx]
        paths.append(".".join([str(first), *(tree_util.keystr((part,), simple=True) for part in rest)]))
    return paths


def _is_result(x: object) -> bool:
    return is_tensor(x) or (isinstance(x, (int, float, complex, Dim)) and not isinstance(x, bool))


def _check_hashes(name: str, leaves: Leaves, signature: Sequence[Any]) -> None:
    """Raise an error that names the argument without a hash, if there is one."""
    for path, entry in zip(leaves.paths, signature, strict=True):
        try:
            hash(entry)
        except TypeError:
            argument = tree_util.keystr(path[1:])
            raise ArgumentError(
                f"{name} was given {shorten(entry.value)} for its argument {argument}, which has no hash to "
                "know it by; pass an array or a constant"
            ) from None
