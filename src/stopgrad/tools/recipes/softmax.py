"""Softmax that neither overflows nor differentiates its maximum.

    softmax(x)ᵢ = exp(xᵢ) / Σⱼ exp(xⱼ)

overflows in float32 as soon as some xᵢ > 88. Softmax does not change when a number is subtracted from all
logits, so the maximum is subtracted first. That number is arbitrary: the derivative with respect to it is
Σᵢ gᵢ = 0, whatever it is. A generator that does not know this sends the cotangents through the maximum all
the same, where they cancel up to rounding and what remains lands on the largest logit, shared among ties. The
stop says what we know:

    z = x - stop(max x),    softmax(x)ᵢ = exp(zᵢ) / Σⱼ exp(zⱼ)

Source: the documentation of TensorFlow's ``tf.stop_gradient``; for the shift, Blanchard, Higham & Higham
2021, "Accurately computing the log-sum-exp and softmax functions", IMA J. Numer. Anal. 41(4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import stopgrad as sg
from stopgrad.base.namespaces import require
from stopgrad.tools.recipes import plots
from stopgrad.tools.recipes.result import (
    Check,
    LossGraph,
    Picture,
    Progress,
    Result,
    Table,
    differentiate,
    silent,
)

Array: TypeAlias = sg.Output | np.ndarray[Any, Any]
Numbers = np.ndarray[Any, Any]


def naive_softmax(x: Array) -> Array:
    """By the definition; overflows."""
    numerator = sg.exp(x)
    return numerator / sg.reduce_sum(numerator, axis=-1, keepdims=True)


def shifted_softmax(x: Array) -> Array:
    """Shifted by the maximum, through which the gradient also goes."""
    numerator = sg.exp(x - sg.reduce_max(x, axis=-1, keepdims=True))
    return numerator / sg.reduce_sum(numerator, axis=-1, keepdims=True)


def softmax(x: Array) -> Array:
    """Shifted by the maximum, which counts as a constant."""
    numerator = sg.exp(x - sg.stop_gradient(sg.reduce_max(x, axis=-1, keepdims=True)))
    return numerator / sg.reduce_sum(numerator, axis=-1, keepdims=True)


FORMS: dict[str, Callable[[Array], Array]] = {
    "naive": naive_softmax,
    "shifted": shifted_softmax,
    "shifted, with the stop": softmax,
}
NAIVE, SHIFTED, STOPPED = FORMS

CASES = {
    "ordinary": [2.0, 1.0, 0.1, -1.0, 0.5],
    "two tied": [3.0, 3.0, 1.0, 0.0, -2.0],
    "all tied": [1.0, 1.0, 1.0, 1.0, 1.0],
    "1e4, alone": [1e4, 9998.0, 9997.0, 0.0, -1e4],
    "1e4, tied": [1e4, 1e4, 9999.0, 9998.0, -1e4],
    "1e4, three tied": [1e4, 1e4, 1e4, 9999.5, 9998.0],
}
WEIGHTS = np.array([0.3, -1.7, 2.9, 0.7, -0.4], np.float32)


def weighted(form: Callable[[Array], Array], x: Array, weights: Array) -> Array:
    """A scalar whose gradient is the pullback of *weights* through softmax."""
    return sg.reduce_sum(weights * form(x))


def exact(x: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
    """Softmax and the gradient p ∘ (w - Σ p w), by hand in float64 and without this library."""
    x, weights = x.astype(np.float64), weights.astype(np.float64)
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p, p * (weights - (p * weights).sum(axis=-1, keepdims=True))


def run(seed: int = 0, engine: str = "auto", progress: Progress = silent) -> Result:
    """Compare the three forms on ties and on logits up to 1e4, then train a classifier with each."""
    progress(0.0, "three forms of softmax")
    rng = np.random.default_rng(seed)
    named = np.array(list(CASES.values()), np.float32)
    random = _random_logits(rng)
    random_weights = np.asarray(rng.standard_normal(random.shape, np.float32))
    # As written: an engine's own form of softmax would leave out what comes back through the maximum.
    values: dict[str, Callable[..., Any]]
    values = {name: sg.function(form, engine=engine, strict=True) for name, form in FORMS.items()}
    pullbacks = {
        name: sg.function(sg.grad(lambda x, w, form=form: weighted(form, x, w)), engine=engine, strict=True)
        for name, form in FORMS.items()
    }
    gradients = {name: pullbacks[name](named, np.broadcast_to(WEIGHTS, named.shape)) for name in FORMS}
    many = {name: pullbacks[name](random, random_weights) for name in FORMS}
    residue = np.abs(many[SHIFTED] - many[STOPPED])
    true_value, true_gradient = exact(random, random_weights)
    graphs = {name: _graph(name) for name in FORMS}
    counts = {name: len(graph.generated) for name, graph in graphs.items()}
    progress(0.3, "training on digits")
    curves = train(seed, engine, lambda done, doing: progress(0.3 + 0.6 * done, doing))
    checks = [
        *_value_checks(values, named, random, true_value),
        *_gradient_checks(many[STOPPED], true_gradient, residue),
        Check("gradient operations saved by the stop", float(counts[SHIFTED] - counts[STOPPED]), "≥", 1),
        Check("trained with the stop: test accuracy", curves[STOPPED][-1], "≥", 0.9),
    ]
    progress(1.0, "done")
    return Result(
        "softmax",
        "Softmax",
        "The maximum that is subtracted for safety is a constant: "
        "stopped, it costs no gradient operation and leaves no residue.",
        checks,
        [
            _case_table(named, {name: values[name](named) for name in FORMS}, gradients),
            _cost_table(counts, residue, curves),
        ],
        _pictures(residue, curves),
        [graphs[SHIFTED], graphs[STOPPED]],
        [naive_softmax, shifted_softmax, softmax],
    )


def _value_checks(values: dict[str, Any], named: Numbers, random: Numbers, truth: Numbers) -> list[Check]:
    infinite = ~np.isfinite(values[NAIVE](named)).all(axis=-1)
    same = all(np.array_equal(values[SHIFTED](x), values[STOPPED](x)) for x in (named, random))
    error = float(np.abs(values[STOPPED](random) - truth).max())
    return [
        Check("naive form: rows with logits of 1e4 that are not finite", float(np.sum(infinite)), "=", 3),
        Check("with and without the stop: the same value, bit for bit (1 = yes)", float(same), "=", 1),
        Check("with the stop: largest error of the value", error, "≤", 1e-6),
    ]


def _gradient_checks(stopped: Numbers, truth: Numbers, residue: Numbers) -> list[Check]:
    error, largest = float(np.abs(stopped - truth).max()), float(residue.max())
    return [
        Check("with the stop: largest error of the gradient", error, "≤", 1e-6),
        Check("without the stop: largest residue through the maximum is not zero", largest, ">", 0.0),
        Check("... and is rounding", largest, "≤", 1e-5),
    ]


def _pictures(residue: Numbers, curves: dict[str, list[float]]) -> list[Picture]:
    return [
        plots.residue(
            residue,
            "What comes back through the maximum when it is not stopped: "
            "2,000 random rows of logits up to 1e4, some with ties.",
        ),
        plots.curves(
            "Digits from raw sensor values (logits up to 1e4 from the first step). "
            "The naive form is NaN at once.",
            curves,
            "step",
            "test accuracy",
            xs=STEPS_SHOWN,
        ),
    ]


def _case_table(x: Numbers, values: dict[str, Numbers], gradients: dict[str, Numbers]) -> Table:
    truth = exact(x, np.broadcast_to(WEIGHTS, x.shape))[1]

    def error(name: str, i: int) -> str:
        worst = np.abs(gradients[name][i] - truth[i]).max()
        return f"{worst:.1e}" if np.isfinite(worst) else "NaN"

    rows = []
    for i, (case, logits) in enumerate(CASES.items()):
        shown = " ".join(f"{v:g}" for v in logits)
        residue = np.abs(gradients[SHIFTED][i] - gradients[STOPPED][i]).max()
        naive = "overflows" if not np.isfinite(values[NAIVE][i]).all() else "right"
        rows.append(
            [
                case,
                shown,
                naive,
                error(NAIVE, i),
                error(SHIFTED, i),
                f"{residue:.1e}" if residue else "0",
                error(STOPPED, i),
            ]
        )
    header = [
        "case",
        "logits",
        "naive value",
        "naive: error of the gradient",
        "shifted: error",
        "of it through the maximum",
        "with the stop: error",
    ]
    return Table("Gradients in float32 against float64 by hand", header, rows)


def _cost_table(counts: dict[str, int], residue: Numbers, curves: dict[str, list[float]]) -> Table:
    rows = [
        [
            name,
            str(counts[name]),
            f"{residue.max():.1e}" if name == SHIFTED else "none",
            f"{curves[name][-1]:.1%}",
        ]
        for name in FORMS
    ]
    return Table(
        "What each form costs and gives",
        ["form", "gradient operations", "largest residue (2,000 rows)", "test accuracy on digits"],
        rows,
    )


def _random_logits(rng: np.random.Generator) -> Numbers:
    """Rows around 0, around 1e4 and spread to 1e4; every second row has its maximum two or three times."""
    x = rng.normal(size=(2000, 10)) * 3.0
    x[500:1000] += 1e4 - 20.0
    x[1000:1500] *= 1000.0
    x = np.minimum(x, 1e4).astype(np.float32)
    for row in x[::2]:
        row[rng.choice(10, rng.integers(1, 3), replace=False)] = row.max()
    return x


def _graph(name: str) -> LossGraph:
    notes = {
        SHIFTED: (
            "Without the stop, operations are generated for the maximum; "
            "what they compute is zero but for rounding."
        ),
        STOPPED: "With the stop, nothing is generated for the maximum.",
        NAIVE: "",
    }
    example = np.zeros((2, 5), np.float32)
    return differentiate(
        f"Softmax, {name}",
        notes[name],
        lambda p, weights: weighted(FORMS[name], p["x"], weights),
        {"x": example},
        weights=example,
    )


# ------------------------------------------------------------------------------------------- training

STEPS = 400
STEPS_SHOWN = list(range(0, STEPS + 1, 10))

SHIFTS: dict[str, Callable[[Array], Array]] = {
    NAIVE: lambda x: x,
    SHIFTED: lambda x: x - sg.reduce_max(x, axis=-1, keepdims=True),
    STOPPED: lambda x: x - sg.stop_gradient(sg.reduce_max(x, axis=-1, keepdims=True)),
}


def cross_entropy(z: Array, labels: Array) -> Array:
    """-mean log softmax(z)[label]."""
    return -sg.reduce_mean(sg.reduce_sum(labels * z, axis=-1) - sg.log(sg.reduce_sum(sg.exp(z), axis=-1)))


def train(seed: int, engine: str, progress: Progress = silent) -> dict[str, list[float]]:
    """Test accuracy, per form, during gradient descent on digits as an unscaled sensor would give them."""
    data = require("sklearn.datasets", "the softmax recipe", "tour").load_digits()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.data))
    x = data.data[order].astype(np.float32) * 64.0
    labels = np.eye(10, dtype=np.float32)[data.target[order]]
    start = 0.5 * rng.normal(size=(64, 10)).astype(np.float32)
    curves: dict[str, list[float]] = {}
    for i, (name, shift) in enumerate(SHIFTS.items()):
        progress(i / len(SHIFTS), f"training with softmax: {name}")
        step = sg.function(
            lambda w, x, y, rate, shift=shift: (
                w - rate * sg.grad(lambda w: cross_entropy(shift(x @ w), y))(w)
            ),
            engine=engine,
        )
        w, curve = start, []
        for n in range(STEPS + 1):
            if n in STEPS_SHOWN:
                curve.append(float(np.mean((x[1300:] @ w).argmax(-1) == labels[1300:].argmax(-1))))
            w = step(w, x[:1300], labels[:1300], 1e-2 / (1.0 + n / 40.0))
        curves[name] = curve
    return curves
