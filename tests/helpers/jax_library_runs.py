"""Holds the reports on losses of JAX libraries against ``jax.grad`` and against the libraries' own lines."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax_libraries import Case
from library_checks import Findings, cut_lines

import stopgrad.jax as sgj
from stopgrad import Flow, Status

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
ARRIVES = (Status.FLOWS, Status.PARTLY_STOPPED)


def examined(build: Callable[[], Case]) -> Findings:
    """What is wrong of a loss.

    Raises:
        Exception: whatever the library raises.
    """
    case, found = build(), Findings()
    differentiate = Gradients(case)
    before = differentiate()
    flow = sgj.explain(case.f, *case.args)
    after = differentiate()
    for key, nonzero in differentiate.nonzero(list(flow)).items():
        found.parameters += 1
        _check(found, case, flow, key, nonzero)
    if before != after:
        found.changed.append("the gradient is another one after the report")
    return found


class Gradients:
    """JAX's own gradients of a loss with respect to all floating-point arguments."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.leaves, tree = jax.tree.flatten(case.args)
        self.floats = [
            i for i, x in enumerate(self.leaves) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact)
        ]

        def of(some: list[Any]) -> Any:
            every = list(self.leaves)
            for i, x in zip(self.floats, some, strict=True):
                every[i] = x
            return case.f(*jax.tree.unflatten(tree, every))

        self.of = of
        self.compiled = (
            None if case.undefined else jax.jit(jax.value_and_grad(of)).lower(self._given).compile(FAST)
        )

    @property
    def _given(self) -> list[Any]:
        return [jnp.asarray(self.leaves[i]) for i in self.floats]

    def __call__(self) -> bytes:
        """Value and gradient, bit by bit; of a loss without one, the beginning of JAX's error."""
        if self.compiled is not None:
            return b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(self.compiled(self._given)))
        try:
            jax.grad(self.of)(self._given)
        except ValueError as error:
            return str(error)[:40].encode()
        raise AssertionError("JAX differentiates it")

    def nonzero(self, keys: list[str]) -> dict[str, bool | None]:
        """For each floating-point argument whether its gradient is not zero; None where JAX raises."""
        if self.compiled is None:
            return {keys[i]: None for i in self.floats}
        found = dict.fromkeys([keys[i] for i in self.floats], False)
        rng = np.random.default_rng(0)
        for shake in (0.0, 0.1):
            given = [x + shake * rng.normal(size=x.shape).astype(x.dtype) for x in self._given]
            for i, dx in zip(self.floats, self.compiled(given)[1], strict=True):
                found[keys[i]] |= bool(np.any(dx))
        return dict(found)


def _check(found: Findings, case: Case, flow: Flow, key: str, nonzero: bool | None) -> None:
    """Compare what the case, JAX and the report say of an argument."""
    held = next((wanted for name, wanted in case.held.items() if fnmatch.fnmatchcase(key, name)), None)
    cut = next((wanted for name, wanted in case.cut.items() if fnmatch.fnmatchcase(key, name)), None)
    vanishes = any(fnmatch.fnmatchcase(key, name) for name in case.vanish)
    if bool(nonzero) is (held is not None) and not vanishes:
        found.case.append(f"{key}: JAX's gradient is {'not ' if nonzero else ''}zero")
    if flow[key].arrives is (held is not None) or (nonzero is None and flow[key].status != Status.UNDEFINED):
        found.verdicts.append(f"{key}: {flow[key].status}")
    if isinstance(held, str):
        if flow[key].status != held:
            found.verdicts.append(f"{key}: {flow[key].status}, not {held}")
        return
    wanted = held if held is not None else cut if cut is not None else set()
    stops = any(one.status == Status.STOPPED for one in flow[key].cuts)
    told = cut_lines(flow, key) if held is not None or stops else set()
    if told != wanted:
        found.lines.append(f"{key}: {sorted(told ^ wanted)} {'' if told - wanted else 'not '}told")


def ratio(build: Callable[[], Case], runs: int = 3) -> float:
    """The processor time of a report, over that in which JAX traces the loss and its gradient."""
    case = build()
    loss = Gradients(case)
    of = loss.of if case.undefined else jax.value_and_grad(loss.of)
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(runs):
        for reports in times:
            jax.clear_caches()
            begun = time.process_time()
            if reports:
                sgj.explain(case.f, *case.args)
            else:
                jax.make_jaxpr(of)(loss._given)
            times[reports].append(time.process_time() - begun)
    return min(times[True]) / min(times[False])
