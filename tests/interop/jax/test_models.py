"""Models of JAX's libraries: nothing amiss is said, and the verdicts are what ``jax.grad`` and a step do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("stopgrad.jax")

import jax
import jax.numpy as jnp
import jax_others  # noqa: F401 - it adds its models to the table.
from jax_models import MODELS, Model
from tiers import some

import stopgrad as sg
import stopgrad.jax as sgj
from stopgrad.flow.updates import MOVES

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def reached(model: Model) -> list[bool]:
    """For each parameter, whether JAX's gradient is other than zero at any of three points."""
    leaves, tree = jax.tree.flatten(model.params)
    found = [False] * len(leaves)
    rng = np.random.default_rng(0)
    gradient = jax.jit(jax.grad(lambda some: model.loss(jax.tree.unflatten(tree, some), *model.args)))
    for shake in (0.0, 0.05, 0.1):
        given = [x + shake * rng.normal(size=x.shape).astype(x.dtype) for x in leaves]
        for k, dx in enumerate(gradient(given)):
            found[k] |= bool(np.any(np.asarray(dx) != 0))
    return found


def moved(model: Model, tx: Any) -> list[bool]:
    """For each parameter, whether the user's own step moves it."""
    import optax

    gradient = jax.grad(model.loss)(model.params, *model.args)
    updates, _ = tx.update(gradient, tx.init(model.params), model.params)
    after = optax.apply_updates(model.params, updates)
    pairs = zip(jax.tree.leaves(model.params), jax.tree.leaves(after), strict=True)
    return [bool(np.any(np.asarray(a) != np.asarray(b))) for a, b in pairs]


@pytest.mark.parametrize("name", some(MODELS, 3, pytest.mark.nightly))
def test_a_model_trains_as_it_is_said(name: str) -> None:
    optax = pytest.importorskip("optax")
    model = MODELS[name]()
    transformations = [
        optax.sgd(0.1),
        optax.adam(1e-2),
        optax.adamw(1e-2, weight_decay=0.1),
        optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9)),
    ]
    tx = transformations[list(MODELS).index(name) % 4]
    flow = sgj.explain(
        model.loss, model.params, *model.args, argnums=0, optimizer=(tx, tx.init(model.params))
    )
    assert not [cut for cut in flow.cuts if cut.status == sg.Status.STOPPED and not model.held], flow
    assert not [finding for finding in flow.findings if not model.held], flow
    assert [reach.arrives for reach in flow.values()] == reached(model), flow
    for key, reach in flow.items():
        assert reach.arrives != any(part in key for part in model.held), key
    assert [flow[key].moves for key in flow] == moved(model, tx)
    assert {flow[key].update.verdict for key in flow if flow[key].arrives} <= {MOVES}
    assert jnp.isfinite(model.loss(model.params, *model.args))
