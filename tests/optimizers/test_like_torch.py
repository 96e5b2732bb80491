"""Every optimiser and option moves parameters as ``torch.optim``'s of the same name does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import stopgrad as sg

SHAPES = {"matrix": (3, 4), "tall": (5, 2), "vector": (3,), "scalar": (), "empty": (0, 2), "deep": (2, 3, 2)}
STEPS = 50

RNG = np.random.default_rng(11)
START = {name: RNG.normal(size=shape) for name, shape in SHAPES.items()}
DATA = [{name: RNG.normal(size=shape) for name, shape in SHAPES.items()} for _ in range(STEPS)]

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("sgd", "SGD", {}),
    ("sgd", "SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("sgd", "SGD", {"lr": 0.1, "momentum": 0.9}),
    ("sgd", "SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("sgd", "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("sgd", "SGD", {"lr": 0.01, "momentum": 0.5, "maximize": True}),
    ("adam", "Adam", {}),
    ("adam", "Adam", {"lr": 0.1, "betas": (0.8, 0.99), "eps": 1e-3, "weight_decay": 0.1}),
    ("adam", "Adam", {"lr": 0.1, "amsgrad": True}),
    ("adam", "Adam", {"lr": 0.1, "maximize": True, "weight_decay": 0.1}),
    ("adamw", "AdamW", {}),
    ("adamw", "AdamW", {"lr": 0.1, "betas": (0.5, 0.9), "weight_decay": 0.3, "amsgrad": True}),
    ("adamw", "AdamW", {"lr": 0.1, "maximize": True}),
]


def ours(options: dict[str, Any]) -> dict[str, Any]:
    """PyTorch's options as ours are called."""
    return {{"lr": "learning_rate"}.get(name, name): value for name, value in options.items()}


def graph_of(function: str, options: dict[str, Any], shapes: Any = SHAPES) -> tuple[Any, ...]:
    with sg.Graph().as_default() as graph:
        parameters = {name: sg.parameter(START[name], name=name) for name in shapes}
        data = {name: sg.placeholder(sg.float64, shapes[name]) for name in shapes}
        loss = sg.add_n([sg.reduce_sum(data[n] * x + sg.sin(x)) for n, x in parameters.items()])
        update = getattr(sg.optimizers, function)(loss, parameters, **ours(options))
    return graph, parameters, data, update


def theirs(name: str, options: dict[str, Any], shapes: Any = SHAPES, steps: int = STEPS) -> dict[str, Any]:
    parameters = {n: torch.tensor(START[n], requires_grad=True) for n in shapes}
    optimizer = getattr(torch.optim, name)(list(parameters.values()), **options)
    for data in DATA[:steps]:
        optimizer.zero_grad()
        sum((torch.tensor(data[n]) * x + x.sin()).sum() for n, x in parameters.items()).backward()
        optimizer.step()
    return {n: x.detach().numpy() for n, x in parameters.items()}


def close(found: dict[str, Any], expected: dict[str, Any], tolerance: float = 1e-12) -> None:
    for name, value in expected.items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(("function", "name", "options"), CASES)
def test_parameters_are_those_of_pytorch_after_50_steps(function: str, name: str, options: Any) -> None:
    graph, parameters, data, update = graph_of(function, options)
    with sg.Session(graph, engine="numpy") as session:
        for fed in DATA:
            session.run(update.run, {data[n]: fed[n] for n in data})
        close({n: session.value(x) for n, x in parameters.items()}, theirs(name, options))
