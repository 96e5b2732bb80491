"""Every optimiser and option moves parameters as ``torch.optim``'s of the same name does."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from all_engines import each_engine

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
    ("rmsprop", "RMSprop", {}),
    ("rmsprop", "RMSprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.9}),
    ("rmsprop", "RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.5, "maximize": True}),
    ("adagrad", "Adagrad", {}),
    ("adagrad", "Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}),
    ("adagrad", "Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3, "maximize": True}),
    ("adafactor", "Adafactor", {}),
    ("adafactor", "Adafactor", {"lr": 0.5, "beta2_decay": -0.5, "d": 1.5, "weight_decay": 0.1}),
    ("adafactor", "Adafactor", {"lr": 0.1, "eps": (1e-2, 1e-1), "maximize": True}),
    ("muon", "Muon", {}),
    ("muon", "Muon", {"lr": 0.1, "weight_decay": 0.3, "momentum": 0.5, "nesterov": False, "ns_steps": 3}),
    ("muon", "Muon", {"adjust_lr_fn": "match_rms_adamw", "ns_coefficients": (2.0, -1.5, 0.5), "eps": 1e-3}),
    ("muon", "Muon", {"adjust_lr_fn": "original", "ns_steps": 0}),
]


MATRICES = ("matrix", "tall")
LEFT_OUT = {"Adafactor": ("empty",), "Muon": [name for name in SHAPES if name not in MATRICES]}
"""PyTorch's Adafactor divides by the number of elements; its Muon moves matrices alone."""


def shapes_for(name: str) -> dict[str, tuple[int, ...]]:
    return {n: shape for n, shape in SHAPES.items() if n not in LEFT_OUT.get(name, ())}


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
def test_parameters_are_those_of_pytorch_after_50_steps(
    function: str, name: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = shapes_for(name)
    more = {}
    if name == "Muon":  # Whose iteration is in bfloat16, where nothing is equal to 12 digits.
        monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x.clone())
        more["ns_dtype"] = "float64"
    graph, parameters, data, update = graph_of(function, {**options, **more}, shapes)
    with sg.Session(graph, engine="numpy") as session:
        for fed in DATA:
            session.run(update.run, {data[n]: fed[n] for n in data})
        close({n: session.value(x) for n, x in parameters.items()}, theirs(name, options, shapes))


@pytest.mark.parametrize(
    ("function", "name"),
    [(f, n) for f, n, options in CASES if not options],
)
def test_defaults_are_pytorchs(function: str, name: str) -> None:
    called = inspect.signature(getattr(sg.optimizers, function)).parameters
    for parameter in inspect.signature(getattr(torch.optim, name)).parameters.values():
        if parameter.name in OF_PYTORCH_ALONE or (parameter.name, name) == ("maximize", "Muon"):
            continue
        mine = called[{"lr": "learning_rate", "params": "parameters"}.get(parameter.name, parameter.name)]
        assert mine.default == parameter.default, parameter.name


OF_PYTORCH_ALONE = ("foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay")
"""How PyTorch computes, on which nothing here depends."""


def test_muon_goes_in_bfloat16_as_pytorch_does() -> None:
    options = {"lr": 0.1, "weight_decay": 0.1}
    shapes = shapes_for("Muon")
    graph, parameters, data, update = graph_of("muon", options, shapes)
    with sg.Session(graph, engine="numpy") as session:
        for fed in DATA[:3]:
            session.run(update.run, {data[n]: fed[n] for n in data})
        found = {n: session.value(x) for n, x in parameters.items()}
    close(found, theirs("Muon", options, shapes, 3), 1e-9)


@pytest.mark.parametrize("bound", [0.5, 3.0, 100.0])
def test_the_global_norm_is_clipped_as_pytorchs(bound: float) -> None:
    graph, parameters, data, update = graph_of("sgd", {"lr": 0.1, "clip_norm": bound})
    reference = {n: torch.tensor(START[n], requires_grad=True) for n in SHAPES}
    optimizer = torch.optim.SGD(list(reference.values()), lr=0.1)
    with sg.Session(graph, engine="numpy") as session:
        for fed in DATA[:10]:
            session.run(update.run, {data[n]: fed[n] for n in data})
            optimizer.zero_grad()
            sum((torch.tensor(fed[n]) * x + x.sin()).sum() for n, x in reference.items()).backward()
            torch.nn.utils.clip_grad_norm_(list(reference.values()), bound)
            optimizer.step()
        close(
            {n: session.value(x) for n, x in parameters.items()},
            {n: x.detach().numpy() for n, x in reference.items()},
        )


def test_values_are_clipped_as_pytorchs() -> None:
    graph, parameters, data, update = graph_of("adam", {"lr": 0.1, "clip_value": 0.25})
    reference = {n: torch.tensor(START[n], requires_grad=True) for n in SHAPES}
    optimizer = torch.optim.Adam(list(reference.values()), lr=0.1)
    with sg.Session(graph, engine="numpy") as session:
        for fed in DATA[:10]:
            session.run(update.run, {data[n]: fed[n] for n in data})
            optimizer.zero_grad()
            sum((torch.tensor(fed[n]) * x + x.sin()).sum() for n, x in reference.items()).backward()
            torch.nn.utils.clip_grad_value_(list(reference.values()), 0.25)
            optimizer.step()
        close(
            {n: session.value(x) for n, x in parameters.items()},
            {n: x.detach().numpy() for n, x in reference.items()},
        )


@each_engine
def test_accumulated_gradients_are_clipped_and_applied_as_their_mean(engine: str) -> None:
    """Also an average of parameters, which moves when they do."""
    options = {"lr": 0.1, "accumulate": 4, "clip_norm": 1.0, "average": 0.9}
    graph, parameters, data, update = graph_of("adamw", options)
    reference = {n: torch.tensor(START[n], requires_grad=True) for n in SHAPES}
    averages = {n: START[n] for n in SHAPES}
    optimizer = torch.optim.AdamW(list(reference.values()), lr=0.1)
    with sg.Session(graph, engine=engine) as session:
        for i, fed in enumerate(DATA[:12]):
            session.run(update.run, {data[n]: fed[n] for n in data})
            loss = sum((torch.tensor(fed[n]) * x + x.sin()).sum() for n, x in reference.items())
            (loss / 4).backward()
            if i % 4 == 3:
                torch.nn.utils.clip_grad_norm_(list(reference.values()), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                averages = {n: 0.9 * a + 0.1 * reference[n].detach().numpy() for n, a in averages.items()}
            close(
                {n: session.value(x) for n, x in parameters.items()},
                {n: x.detach().numpy() for n, x in reference.items()},
            )
            close({n: session.value(update.averages[x]) for n, x in parameters.items()}, averages)
            assert session.value(update.state["adamw/step"]) == (i + 1) // 4


def test_groups_are_pytorchs_parameter_groups() -> None:
    groups = {
        ("vector", "scalar"): {"learning_rate": 0.01, "betas": (0.5, 0.5)},
        "dee*": sg.optimizers.SGD(0.5, momentum=0.9),
    }
    options = {"lr": 0.1, "groups": groups, "no_decay": ["*r"], "weight_decay": 0.2}
    graph, parameters, data, update = graph_of("adamw", options)
    reference = {n: torch.tensor(START[n], requires_grad=True) for n in SHAPES}
    rest = [reference[n] for n in ("matrix", "tall", "empty")]
    small = [reference[n] for n in ("vector", "scalar")]
    adamw = torch.optim.AdamW(
        [{"params": rest}, {"params": small, "lr": 0.01, "betas": (0.5, 0.5), "weight_decay": 0.0}],
        lr=0.1,
        weight_decay=0.2,
    )
    sgd = torch.optim.SGD([reference["deep"]], lr=0.5, momentum=0.9)
    with sg.Session(graph, engine="numpy") as session:
        for fed in DATA[:20]:
            session.run(update.run, {data[n]: fed[n] for n in data})
            adamw.zero_grad()
            sgd.zero_grad()
            sum((torch.tensor(fed[n]) * x + x.sin()).sum() for n, x in reference.items()).backward()
            adamw.step()
            sgd.step()
        close(
            {n: session.value(x) for n, x in parameters.items()},
            {n: x.detach().numpy() for n, x in reference.items()},
        )
