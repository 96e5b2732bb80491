"""In which form XLA computes the products of matrices on CPUs."""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import numpy as np
import pytest

import stopgrad as sg
from stopgrad.engines.xla import jax_namespace
from stopgrad.ops.linalg.contractions import MatMul


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def transposed(a: Any, b: Any) -> list[tuple[int, ...]]:
    """The shapes of what the lowering of aᵀ b makes by transposing."""
    xp = jax_namespace()
    traced = jax.make_jaxpr(lambda a, b: MatMul.xla(xp, a, b, True, False, None))(a, b)
    return [eqn.outvars[0].aval.shape for eqn in traced.eqns if eqn.primitive.name == "transpose"]


# k, m, n: steps of a GPT, a transformer, an MLP and InfoNCE.
RESULT = [(1024, 1024, 256), (512, 1024, 256), (128, 512, 10), (512, 512, 128)]
OPERAND = [(1024, 256, 1024), (1024, 256, 256), (128, 784, 512), (512, 512, 512), (1024, 1024, 512)]


@pytest.mark.parametrize(("k", "m", "n"), RESULT + OPERAND)
def test_a_weights_gradient_transposes_its_result_if_that_moves_fewer_numbers(k: int, m: int, n: int) -> None:
    a, b = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((k, m), (k, n))]
    assert transposed(a, b) == [(m, n) if (k, m, n) in RESULT else (m, k)]


def test_a_product_of_float64_transposes_its_operand() -> None:
    with jax.enable_x64(True):
        assert transposed(normal(8, 8, dtype="float64"), normal(8, 2, dtype="float64")) == [(8, 8)]


def test_a_product_of_unknown_size_transposes_its_operand() -> None:
    (rows,) = jax.export.symbolic_shape("rows")
    a, b = [jax.ShapeDtypeStruct((rows, width), np.float32) for width in (8, 2)]
    assert transposed(a, b) == [(8, rows)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("k", "m", "n"), [(48, 40, 8), (48, 8, 40), (7, 5, 1), (1, 5, 1), (0, 5, 1), (4, 4, 2)]
)
def test_both_forms_are_numpys_product(k: int, m: int, n: int, dtype: str) -> None:
    a, b = normal(k, m, dtype=dtype), normal(k, n, dtype=dtype, seed=1)
    f = sg.function(lambda a, b: sg.matmul(a, b, transpose_a=True), engine="xla")
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(f(a, b), a.T.astype(float) @ b.astype(float), rtol=tolerance, atol=tolerance)
