"""Every operation inside JAX: its gradient there, backwards and forwards, is the one that it has here."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operation_cases import DIFFERENTIATED, attribute_values, draw

import stopgrad as sg
import stopgrad.jax as sgj
from stopgrad.base.samples import Sample
from stopgrad.base.types import map_sizes, size_value
from stopgrad.graph.build import as_output, emit
from stopgrad.graph.builder import default_graph
from stopgrad.graph.op import Op

pytestmark = pytest.mark.slow

# An assignment lives in a session, and these compute with 64 bits only.
ELSEWHERE = {"Assign", "RandomLogGamma", "RandomPoisson"}
FIRST = {
    case.values[0].type: case for case in reversed(DIFFERENTIATED) if case.values[0].type not in ELSEWHERE
}


@pytest.mark.nightly
@pytest.mark.parametrize(("definition", "sample"), [FIRST[name] for name in sorted(FIRST)])
def test_gradients_inside_of_jax(definition: type[Op], sample: Sample) -> None:
    arrays = draw(sample)
    values = tuple(
        [map_sizes(v, lambda s: size_value(s, {"n": 3})) for v in attribute_values(definition, sample)]
    )
    places = [i for i, a in enumerate(arrays) if np.asarray(a).dtype.kind == "f"]
    argnums = tuple(range(len(places)))

    def total(*some: object) -> object:
        graph, given = default_graph(), dict(zip(places, some, strict=True))
        operands = tuple([as_output(given.get(i, a), graph) for i, a in enumerate(arrays)])
        ys = [y for y in emit(definition, operands, values, None, graph).outputs if y.type.differentiable]
        parts = [sg.reduce_sum(sg.sin(sg.real(y) if y.dtype.is_complex else y)) for y in ys]
        return sg.add_n([sg.cast(part, parts[0].dtype) for part in parts]) if parts else sg.constant(0.0)

    if not places:
        pytest.skip("no operand is a real number")
    some = [arrays[i] for i in places]
    f, wanted = sgj.callable(total), sg.function(sg.grad(total, argnums))(*some)
    with jax.enable_x64(True):
        found = jax.jit(jax.grad(f, argnums))(*some)
        along = [np.cos(np.arange(x.size, dtype=x.dtype)).reshape(x.shape) for x in some]
        moved = jax.jit(lambda *xs: jax.jvp(f, xs, tuple(map(jnp.asarray, along)))[1])(*some)
    for g, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        moved, sum(np.sum(w * t) for w, t in zip(wanted, along, strict=True)), rtol=1e-5, atol=1e-5
    )
    narrow = jax.jit(jax.grad(f, argnums))(*[x.astype(np.float32) for x in some])
    for g, w in zip(narrow, wanted, strict=True):
        assert g.dtype == jnp.float32
        np.testing.assert_allclose(g, w, rtol=1e-2, atol=1e-2)
