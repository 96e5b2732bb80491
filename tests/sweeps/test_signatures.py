"""Public functions with TensorFlow's names have TensorFlow's parameters: names, order and defaults.

TensorFlow 2.21's signatures stand in ``tensorflow_signatures.json``, as ``inspect.signature`` gives them.
What ours have besides is by keyword only. Each deliberate difference has its reason below.
"""

from __future__ import annotations

import ast
import inspect
import json
from typing import Any, NamedTuple

import pytest
from places import HELPERS
from together import together

import stopgrad as sg
from stopgrad.base.types import dtype_of

TABLE: dict[str, str] = json.loads((HELPERS / "tensorflow_signatures.json").read_text())

NAMESPACES = ("", "math.", "nn.", "linalg.", "signal.", "image.", "bitwise.", "quantization.")
"""Where TensorFlow may have a function of ours; the first that has it counts."""

OMITTED = {
    "layout": "the layouts of TensorFlow's DTensor, which are about several machines",
    "alg": "there is one algorithm for random bits, so that they are the same on every engine",
}
"""Parameters of TensorFlow's that no function here needs to have."""

RENAMED = {"seed": "key"}
"""Random functions take a key where TensorFlow's stateless ones take a seed, no integer there either."""


class Difference(NamedTuple):
    """What is not compared, on either side, and why."""

    parameters: tuple[str, ...]
    reason: str


ALL = ("*",)

DELIBERATE: dict[str, Difference] = {
    "cond": Difference(
        ("operands", "name"), "takes operands for its functions, as JAX's does; the name is by keyword"
    ),
    "conv": Difference(
        ALL, "the operation itself, over any number of axes; with TensorFlow's parameters it is convolution"
    ),
    "function": Difference(ALL, "traces as jax.jit does; its options are those of engines"),
    "no_gradient": Difference(ALL, "a block in which gradients stop; TensorFlow's marks a type of operation"),
    "print": Difference(ALL, "jax.debug.print, with fields in a text; TensorFlow's has an output stream"),
    **{
        name: Difference(("dtype",), "by default that of the tensors which say where the values lie")
        for name in ("random_gamma", "random_normal", "random_truncated_normal", "random_uniform")
    },
    **{
        name: Difference(("name",), "operations have names here")
        for name in ("random_fold_in", "random_split")
    },
    "random_shuffle": Difference(("key",), "nothing is random without a key"),
    "rot90": Difference(ALL, "numpy.rot90, of any array; TensorFlow's is of images"),
    "scan": Difference(ALL, "jax.lax.scan, which has a carry and results; TensorFlow's has only a carry"),
}


def public_functions() -> dict[str, Any]:
    return {
        name: f
        for name, f in inspect.getmembers(sg)
        if not name.startswith("_") and inspect.isfunction(f) and f.__module__.startswith("stopgrad.")
    }


def theirs(name: str) -> str | None:
    """Where TensorFlow has a function of this name."""
    if name.startswith("random_"):
        bare = name.removeprefix("random_")
        found = (f"random.stateless_{bare}", f"random.{bare}")
    else:
        found = tuple(f"{namespace}{name}" for namespace in NAMESPACES)
    return next((key for key in found if key in TABLE), None)


SHARED = {name: key for name in sorted(public_functions()) if (key := theirs(name))}


class Parameter(NamedTuple):
    name: str
    kind: Any
    default: Any


def parsed(signature: str) -> list[Parameter]:
    """The parameters of a signature that stands in the table."""
    (made,) = ast.parse(f"def f{signature}: pass").body
    assert isinstance(made, ast.FunctionDef)
    arguments = made.args
    without = len(arguments.args) - len(arguments.defaults)
    defaults = [inspect.Parameter.empty] * without + [_value(d) for d in arguments.defaults]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = [Parameter(a.arg, kind, d) for a, d in zip(arguments.args, defaults, strict=True)]
    if arguments.vararg:
        found.append(
            Parameter(arguments.vararg.arg, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.empty)
        )
    if arguments.kwarg:  # Only ever for a name.
        found.append(Parameter("name", inspect.Parameter.KEYWORD_ONLY, None))
    return found


def _value(node: ast.expr) -> Any:
    text = ast.unparse(node)
    return float(text) if text.endswith("inf") else ast.literal_eval(node)


def same_default(name: str, their: Any, our: Any) -> bool:
    if name == "name":
        return our is None or our == their
    if their is inspect.Parameter.empty or our is inspect.Parameter.empty or their is None or our is None:
        return their is our
    if isinstance(their, str) and their.startswith("tf."):
        return dtype_of(our) is dtype_of(their.removeprefix("tf."))
    if isinstance(their, str) and "." in their:  # A member of an enumeration.
        return our == their.rpartition(".")[2].lower()
    if isinstance(their, list):
        return list(our) == their
    return bool(their == our) and isinstance(their, str) == isinstance(our, str)


def differences(name: str, allowed: tuple[str, ...] = ()) -> list[str]:
    """In what our function is not called as TensorFlow's is."""
    if allowed == ALL:
        return []
    ours = [
        Parameter(p.name, p.kind, p.default)
        for p in inspect.signature(public_functions()[name]).parameters.values()
    ]
    has = {p.name for p in ours}
    expected = [
        p._replace(name=RENAMED.get(p.name, p.name) if p.name not in has else p.name)
        for p in parsed(TABLE[SHARED[name]])
        if p.name not in OMITTED or p.name in has
    ]
    expected = [p for p in expected if p.name not in allowed]
    wanted = {p.name for p in expected}
    extra = [p for p in ours if p.name not in wanted and p.name not in allowed]
    shared = [p for p in ours if p.name in wanted]
    found = [
        f"{p.name} is not TensorFlow's, and not by keyword only"
        for p in extra
        if p.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    if [p.name for p in shared] != [p.name for p in expected]:
        found.append(f"has {[p.name for p in shared]}, not {[p.name for p in expected]}")
        return found
    for our, their in zip(shared, expected, strict=True):
        if our.kind is not their.kind:
            found.append(f"{our.name} is {our.kind.description}, not {their.kind.description}")
        if not same_default(our.name, their.default, our.default):
            found.append(f"{our.name} is {our.default!r} by default, not {their.default!r}")
    return found


@together("name", SHARED)
def test_a_function_of_tensorflows_name_is_called_as_tensorflows(name: str) -> None:
    allowed = DELIBERATE[name].parameters if name in DELIBERATE else ()
    found = differences(name, allowed)
    assert not found, (
        f"{name}{inspect.signature(public_functions()[name])} and {SHARED[name]}{TABLE[SHARED[name]]}"
    )


@pytest.mark.parametrize("name", DELIBERATE)
def test_each_deliberate_difference_is_one(name: str) -> None:
    parameters, reason = DELIBERATE[name]
    assert reason
    assert differences(name)
    if parameters != ALL:
        for one in parameters:
            assert differences(name, tuple(p for p in parameters if p != one)), f"{one} is no difference"


def test_most_functions_are_compared() -> None:
    assert len(SHARED) > 130


def test_a_difference_is_seen() -> None:
    assert parsed("(x, axis=None, output_type='tf.int64', *inputs, **kwargs)") == [
        Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty),
        Parameter("axis", inspect.Parameter.POSITIONAL_OR_KEYWORD, None),
        Parameter("output_type", inspect.Parameter.POSITIONAL_OR_KEYWORD, "tf.int64"),
        Parameter("inputs", inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.empty),
        Parameter("name", inspect.Parameter.KEYWORD_ONLY, None),
    ]
    assert same_default("dtype", "tf.float32", sg.float32)
    assert not same_default("dtype", "tf.float32", None)
    assert not same_default("axis", None, -1)
    assert same_default("unconnected_gradients", "UnconnectedGradients.NONE", "none")
    assert "scan" in SHARED
    assert differences("scan")
