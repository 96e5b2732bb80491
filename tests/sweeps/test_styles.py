"""The same code gives the same dtype, shape and value immediately, in ``sg.function`` and as a graph.

Every public function is called, as ``tests/calls`` says, in all three styles and on each engine.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from calls import Call, all_calls
from together import together

import stopgrad as sg
from stopgrad.base.structure import flatten, unflatten

CALLS = all_calls()

# Public functions that take functions or graphs, build only where there is a graph, or take no tensors.
ELSEWHERE = {
    "tests/transforms/contract": "grad value_and_grad jvp vjp hvp gradients custom_gradient prevent_gradient "
    "probe",
    "tests/transforms/batching": "jacobian hessian vmap",
    "tests/transforms/control": "cond switch while_loop scan fori_loop map_fn checkpoint associative_scan",
    "tests/flow/test_trace_nan": "trace_nan",
    "tests/flow/test_ablate": "ablate",
    "tests/flow/test_check_gradients": "check_gradients",
    "tests/flow/test_assertions": "assert_flows assert_blocked assert_only_flows",
    "tests/train/test_adapters": "add_lora",
    "tests/transforms/contract, again": "explain no_gradient",
    "tests/ops/test_indexing, tests/ops/test_arrays": "at broadcast_static_shape map_structure",
    "tests/ops/test_xp": "broadcast_shapes can_cast finfo from_dlpack iinfo isdtype result_type",
    "tests/graph/test_graph, tests/run/test_session": "placeholder parameter assign name_scope dim function "
    "group",
    "tests/scale/test_mesh": "shard",
    "tests/ops/test_effects": "print debug_callback",
    "tests/train/test_tree_files": "save load",
    "tests/base/test_trees": "tree_flatten tree_leaves tree_map tree_map_with_path tree_reduce "
    "tree_structure tree_unflatten",
    "tests/train/monitoring/test_sessions": "monitor",
}
NOT_HERE = {name for names in ELSEWHERE.values() for name in names.split()}

FUNCTIONS = {name for name, _ in inspect.getmembers(sg, inspect.isfunction) if not name.startswith("_")}


def test_every_public_function_is_called() -> None:
    assert FUNCTIONS - CALLS.keys() - NOT_HERE == set()
    assert CALLS.keys() <= FUNCTIONS


CASES = [
    pytest.param(name, one, id=f"{name}-{i}") for name, calls in CALLS.items() for i, one in enumerate(calls)
]


def same(name: str, found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype, f"{name}: {a.dtype} here, {b.dtype} immediately"
        assert a.shape == b.shape
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        size = 2 if a.dtype.kind == "V" or a.dtype.itemsize == 2 else np.finfo(a.dtype).bits // 8
        tolerance = {2: 2e-2, 4: 2e-5, 8: 1e-10, 16: 1e-10}[size]
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)


class Prepared:
    """A call whose arrays can be replaced."""

    def __init__(self, name: str, one: Call) -> None:
        self.name = name
        self.leaves, self.spec = flatten((one.args, one.kwargs))
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, np.ndarray)]
        self.arrays = [self.leaves[i] for i in self.places]

    def __call__(self, given: list[Any]) -> tuple[list[Any], Any]:
        """The leaves and the structure of what the function gives."""
        filled = list(self.leaves)
        for i, x in zip(self.places, given, strict=True):
            filled[i] = x
        args, kwargs = unflatten(self.spec, filled)
        return flatten(getattr(sg, self.name)(*args, **kwargs))


@together(("name", "one"), CASES, parts=8)
def test_three_styles_agree(name: str, one: Call) -> None:
    called = Prepared(name, one)
    expected, structure = called(called.arrays)
    assert all(isinstance(v, (np.ndarray, np.generic)) for v in expected), "arrays come out"
    structures = []

    def traced(given: list[Any]) -> list[Any]:
        found, spec = called(given)
        structures.append(spec)
        return found

    same(name, sg.function(traced, engine="numpy")(called.arrays), expected)
    assert structures[0] == structure
    with sg.Graph().as_default() as graph:
        fed = [sg.placeholder(a.dtype, a.shape) for a in called.arrays]
        outputs, _ = called(fed)
    with sg.Session(graph, engine="numpy") as session:
        same(name, session.run(outputs, dict(zip(fed, called.arrays, strict=True))), expected)


GROUPS = [list(CALLS)[i : i + 8] for i in range(0, len(CALLS), 8)]


@pytest.mark.slow
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_compiled_calls_agree_with_immediate_ones(names: list[str]) -> None:
    """Several functions in one program: most of the time of a small one is that of compiling it at all."""
    calls = [Prepared(name, one) for name in names for one in CALLS[name]]
    compiled = sg.function(
        lambda arrays: [called(given)[0] for called, given in zip(calls, arrays, strict=True)], engine="xla"
    )
    wrong = {}
    for called, found in zip(calls, compiled([called.arrays for called in calls]), strict=True):
        try:
            same(called.name, found, called(called.arrays)[0])
        except AssertionError as error:
            wrong[called.name] = str(error)
    assert not wrong
