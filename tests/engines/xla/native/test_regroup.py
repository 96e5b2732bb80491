"""Stacks and cuts by a kernel: the bytes of all arguments, in all results, whatever their number and type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base.types import TensorType, dtype_of, tensor_type
from stopgrad.engines.xla import XlaEngine
from stopgrad.engines.xla.native.library import library
from stopgrad.rewrite import rolling

pytestmark = pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}")

RANDOM = np.random.default_rng(0)
DTYPES = ["float32", "float64", "bfloat16", "float16", "complex128", "int8", "uint64", "bool"]


def arrays(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    made = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return [(100 * RANDOM.standard_normal(shape)).astype(made) for shape in shapes]


def types(dtype: str, *shapes: tuple[int, ...]) -> list[TensorType]:
    return [tensor_type(dtype_of(dtype), shape) for shape in shapes]


def regrouped(given: Sequence[Any], dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    program = XlaEngine().regrouper(types(dtype, *[x.shape for x in given]), types(dtype, *shapes))
    assert program is not None
    return [np.asarray(y) for y in program(given)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_stacks_and_parts_of_all_types(dtype: str) -> None:
    given = arrays(dtype, *[(2, 3)] * 6)
    whole, rest = regrouped(given, dtype, (4, 2, 3), (2, 2, 3))
    assert whole.dtype == given[0].dtype
    assert whole.tobytes() + rest.tobytes() == b"".join(x.tobytes() for x in given)
    for part, x in zip(regrouped([whole], dtype, *[(2, 3)] * 4), given, strict=False):
        assert part.tobytes() == x.tobytes()


def test_pieces_need_not_end_together_and_may_be_empty() -> None:
    given = arrays("float32", (3,), (0, 5), (), (2, 2), (0,), (7,))
    made = regrouped(given, "float32", (0,), (2,), (6, 2), (), (0, 3))
    flat = np.concatenate([x.ravel() for x in given])
    np.testing.assert_array_equal(np.concatenate([y.ravel() for y in made]), flat)
    assert [y.shape for y in made] == [(0,), (2,), (6, 2), (), (0, 3)]


def test_much_is_copied_by_several_threads() -> None:
    given = arrays("float32", *[(301, 97)] * 60)
    (whole,) = regrouped(given, "float32", (60, 301, 97))
    np.testing.assert_array_equal(whole, np.stack(given))


def test_other_sizes_are_an_error() -> None:
    with pytest.raises(Exception, match="other sizes"):
        regrouped(arrays("float32", (3,)), "float32", (4,))


LAYERS = 130
"""No multiple of the 50 in a stack, nor of the 4 parts that are cut out at a time without kernels."""


def loss(layers: Sequence[Any], x: Any) -> Any:
    for w, v, b in layers:
        x = sg.tanh((x @ w + b) @ v)
    return sg.reduce_sum(x * x)


@pytest.fixture
def layered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Layers on JAX's device and an input, for which :func:`loss` runs as a loop."""
    monkeypatch.setattr(rolling, "LEAST_SAVED", 20)
    drawn = [arrays("float32", (4, 4), (4, 4), (4,)) for _ in range(LAYERS)]
    one = np.eye(4, dtype=np.float32)
    layers = [(one + w / 900, one + v / 900, b / 900) for w, v, b in drawn]
    return jax.device_put((layers, np.ones((2, 4), np.float32)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many arrays each regrouping takes that was asked for: one for all stacks or cuts of a type."""
    found: list[int] = []
    made = XlaEngine.regrouper

    def regrouper(self: XlaEngine, taken: Sequence[TensorType], given: Sequence[TensorType]) -> Any:
        found.append(len(taken))
        return made(self, taken, given)

    monkeypatch.setattr(XlaEngine, "regrouper", regrouper)
    return found


def agree(found: object, expected: object) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(one, jax.Array)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_layers_are_stacked_and_their_gradients_cut_in_one_call_each(layered: Any, asked: list[int]) -> None:
    step = sg.function(sg.value_and_grad(loss), engine="xla")
    expected = sg.function(sg.value_and_grad(loss), engine="xla", strict=True)(*layered)
    for _ in range(3):
        agree(step(*layered), expected)
    assert sorted(asked) == [1, 1, 100, 100]


def test_jax_traces_what_a_kernel_would_hide(layered: Any, asked: list[int]) -> None:
    step = sg.function(loss, engine="xla")
    layers, x = layered
    agree(
        jax.grad(lambda layers: step(layers, x))(layers), sg.function(sg.grad(loss), engine="xla")(*layered)
    )
    assert sorted(asked) == [1, 1, 100, 100]


def test_without_kernels_it_is_done_in_parts(
    layered: Any, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = lambda: sg.function(sg.value_and_grad(loss), engine="xla")(*layered)
    monkeypatch.setenv("STOPGRAD_NATIVE", "0")
    parts = step()
    assert XlaEngine().regrouper([], []) is None
    monkeypatch.setenv("STOPGRAD_NATIVE", "1")
    for one, other in zip(jax.tree.leaves(parts), jax.tree.leaves(step()), strict=True):
        np.testing.assert_array_equal(one, other)
    assert sorted(asked) == [0, *[1] * 4, *[100] * 4]
