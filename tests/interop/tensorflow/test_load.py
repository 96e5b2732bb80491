"""Graphs that TensorFlow wrote (tests/helpers/tensorflow_graphs.py): its values and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.all_engines import ENGINES

import stopgrad as sg
import stopgrad.tensorflow as sgtf

GRAPHS = Path(__file__).parent / "graphs"
NAMES = sorted(path.stem for path in GRAPHS.glob("*.npz"))


class Kept:
    """A graph and the numbers that TensorFlow computed for it."""

    def __init__(self, name: str) -> None:
        self.numbers: dict[str, dict[str, Any]] = {}
        with np.load(GRAPHS / f"{name}.npz") as file:
            for key in file.files:
                group, _, one = key.partition("/")
                self.numbers.setdefault(group, {})[one] = file[key]
        self.outputs = self.numbers["out"]
        path = GRAPHS / name
        signature = None
        if name == "two_signatures_counted":
            path, signature = GRAPHS / "two_signatures", "counted"
        if path.is_dir():
            self.model = sgtf.load(path, signature=signature)
        else:
            self.model = sgtf.load(path.with_suffix(".pb"), list(self.outputs))
        self.fed = [self.numbers["in"][name] for name in self.model.inputs]

    def parameters(self) -> dict[str, str]:
        """The names of the parameters by those of TensorFlow's variables, which hold the same values."""
        found = {}
        for name, value in self.numbers.get("variable", {}).items():
            same = [
                key
                for key, held in self.model.values().items()
                if held.shape == value.shape and np.array_equal(held, value)
            ]
            assert len(same) == 1, f"the variable {name} is among the parameters {same}"
            found[name] = same[0]
        return found

    def results(self, parameters: Any, *xs: Any) -> dict[str, Any]:
        made = self.model.apply(parameters, *xs)
        return made if isinstance(made, dict) else dict(zip(self.outputs, [made], strict=True))


def close(a: Any, b: Any, what: str) -> None:
    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-5, err_msg=what)


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_of_tensorflow_gives_its_values(name: str) -> None:
    kept = Kept(name)
    for key, y in kept.results({}, *kept.fed).items():
        close(y, kept.outputs[key], key)


def check_gradients_of(name: str, engine: str) -> None:
    kept = Kept(name)
    held = kept.parameters()
    floats = [i for i, x in enumerate(kept.fed) if x.dtype.kind == "f"]
    seeds = kept.numbers["seed"]

    def total(xs: Any, parameters: Any) -> Any:
        given = [xs[str(i)] if i in floats else x for i, x in enumerate(kept.fed)]
        ys = kept.results(parameters, *given)
        return sg.add_n([sg.reduce_sum(ys[key] * seed) for key, seed in seeds.items()])

    fed = {str(i): kept.fed[i] for i in floats}
    values = {key: kept.model.values()[key] for key in held.values()}
    f = sg.function(sg.grad(total, argnums=(0, 1)), engine=engine)
    along, slopes = f(fed, values)
    for i, x in enumerate(kept.model.inputs):
        wanted = kept.numbers.get("grad", {}).get(x)
        if i in floats:
            close(along[str(i)], 0.0 if wanted is None else wanted, f"the gradient of {x}")
    for variable, key in held.items():
        wanted = kept.numbers.get("slope", {}).get(variable)
        close(slopes[key], 0.0 if wanted is None else wanted, f"the gradient of {variable}")


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_tensorflow(name: str) -> None:
    check_gradients_of(name, "numpy")


@pytest.mark.slow
@pytest.mark.parametrize("engine", [one for one in ENGINES if one != "numpy"])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_tensorflow_on_compiled_engines(name: str, engine: str) -> None:
    check_gradients_of(name, engine)
