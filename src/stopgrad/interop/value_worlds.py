"""The world of a value (ours, PyTorch, JAX or TensorFlow), found from its class without importing any."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from stopgrad.base.source import is_internal
from stopgrad.base.structure import flatten
from stopgrad.interop.shared import keras

OURS, TORCH, JAX, TENSORFLOW = "stopgrad", "PyTorch", "JAX", "TensorFlow"
"""The worlds that functions are written in, as messages call them."""

_HOMES = {
    "stopgrad": OURS,
    "stopgrad.torch": TORCH,
    "stopgrad.jax": JAX,
    "stopgrad.tensorflow": TENSORFLOW,
    "torch": TORCH,
    "tensorflow": TENSORFLOW,
    "tf_keras": TENSORFLOW,
    **dict.fromkeys(("jax", "jaxlib", "flax", "haiku", "equinox", "optax", "distrax", "rlax"), JAX),
}
"""The world of each package."""
_BACKENDS = {"torch": TORCH, "jax": JAX, "tensorflow": TENSORFLOW}
"""The worlds in which Keras computes."""


def home(module: str) -> str:
    """The world of a module; empty if it has none.

    Examples:
        >>> home("torch.nn.functional"), home("jaxlib._jax"), home("stopgrad.torch"), home("numpy")
        ('PyTorch', 'JAX', 'PyTorch', '')
    """
    first, _, rest = module.partition(".")
    if first == "keras":
        return next((world for backend, world in _BACKENDS.items() if keras.loaded(backend)), "")
    return _HOMES.get(f"{first}.{rest.partition('.')[0]}") or _HOMES.get(first, "")


def kind(value: object) -> str:
    """The world of an object or class; empty for those of none, such as NumPy arrays and numbers."""
    classes = value.__mro__ if inspect.isclass(value) else type(value).__mro__
    homes = (home(str(getattr(one, "__module__", ""))) for one in classes)
    return next(filter(None, homes), "")


def kinds_in(tree: object) -> set[str]:
    """The worlds of the leaves of a structure."""
    return {world for leaf in flatten(tree)[0] if (world := kind(leaf))}


def comes_from(value: object, name: str) -> bool:
    """Whether an object's class (or the object itself, if a class) has that name or a base class that has.

    Examples:
        >>> comes_from(True, "builtins.int"), comes_from(bool, "builtins.int"), comes_from(1, "builtins.bool")
        (True, True, False)
    """
    classes = value.__mro__ if inspect.isclass(value) else type(value).__mro__
    return any(f"{one.__module__}.{one.__qualname__}" == name for one in classes)


def is_module(value: object) -> bool:
    """Whether a value is a PyTorch module, or a class of modules."""
    return comes_from(value, "torch.nn.modules.module.Module")


def is_optimizer(value: object) -> bool:
    """Whether a value is a PyTorch optimizer."""
    return comes_from(value, "torch.optim.optimizer.Optimizer")


# ----------------------------------------------------------------------------------------- what code names

MOST = 2000
"""The most functions whose code is read for one function."""


def referenced(f: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The values that a function's code, and that of the functions it calls, refers to, nearest first.

    They are read from the code without running it: globals, closures, attributes of modules, and those of
    a method's object. Functions of the frameworks are included, but their code is not read.
    """
    owner = getattr(f, "__self__", None)
    if kind(owner):
        yield "self", owner
    elif owner is not None and not isinstance(owner, ModuleType):
        yield from getattr(owner, "__dict__", {}).items()
    todo = list(_functions(f))
    seen: set[int] = set()
    while todo and len(seen) < MOST:
        function = todo.pop(0)
        if id(function.__code__) in seen or is_internal(function.__code__.co_filename):
            continue
        seen.add(id(function.__code__))
        for name, value in _values_named(function):
            yield name, value
            todo += _functions(value)


def _functions(value: object) -> Iterator[FunctionType]:
    """The Python functions that a call of a value runs."""
    if isinstance(value, ModuleType) or inspect.isclass(value):
        return
    function = inspect.unwrap(value) if callable(value) else value
    function = getattr(function, "__func__", function)  # A bound method.
    if isinstance(function, FunctionType):
        yield function
    elif callable(function) and not kind(function):
        call = vars(type(function)).get("__call__")
        inner = getattr(function, "func", None)  # A functools.partial.
        yield from (one for one in (call, inner) if isinstance(one, FunctionType))


def _values_named(f: FunctionType) -> Iterator[tuple[str, Any]]:
    scope: Mapping[str, Any] = {**f.__globals__, **_closure(f)}
    for code in _codes(f.__code__):
        for name in (*code.co_names, *code.co_freevars):
            value = scope.get(name, _MISSING)
            if value is _MISSING:
                if name in _HOMES:  # It may be imported when it runs.
                    yield name, ModuleType(name)
                continue
            yield name, value
            if isinstance(value, ModuleType) and not home(value.__name__):
                inside = vars(value)
                yield from ((f"{name}.{part}", inside[part]) for part in code.co_names if part in inside)


_MISSING = object()


def _closure(f: FunctionType) -> dict[str, Any]:
    variables = {}
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            variables[name] = cell.cell_contents
        except ValueError:  # The cell is still empty.
            continue
    return variables


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions that it defines."""
    todo = [code]
    while todo:
        one = todo.pop()
        yield one
        todo += [const for const in one.co_consts if isinstance(const, CodeType)]


def named_worlds(f: Callable[..., Any]) -> dict[str, None]:
    """The worlds that a function's code refers to, nearest first."""
    return worlds_among(value for _, value in referenced(f))


def worlds_among(values: Iterable[Any]) -> dict[str, None]:
    """The worlds of modules, functions and objects."""
    worlds: dict[str, None] = {}
    for value in values:
        if isinstance(value, ModuleType):
            world = home(value.__name__)
        else:
            world = kind(value) or home(str(getattr(value, "__module__", None) or ""))
        if world:
            worlds.setdefault(world)
    return worlds
