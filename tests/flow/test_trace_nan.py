"""trace_nan names the operation that made what arrives, in values, gradients and bodies; and the classics."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base.samples import Values
from stopgrad.flow.nans.cures import GENERAL, PATTERNS
from stopgrad.flow.nans.follower import Follower, number
from stopgrad.graph.build import emit
from stopgrad.graph.op import REGISTRY

F32 = np.float32
MASKED = np.array([[-1.0, -1.0], [0.0, 1.0]], F32)
total = sg.reduce_sum


def f32(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, F32)


def softmax_by_hand(x: Any, shift: bool = True) -> Any:
    e = sg.exp(x - sg.reduce_max(x, -1, keepdims=True) if shift else x)
    return e / total(e, -1, keepdims=True)


def open_only(x: Any) -> Any:
    """A mask's infinities, as attention has them."""
    return sg.where(x > 0.0, x, -np.inf)


def of_norm(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: total(x / f(x))


def whitened(deviation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: total((x - sg.reduce_mean(x)) / deviation(x))


def variance_written(x: Any) -> Any:
    return sg.reduce_mean(sg.square(x - sg.reduce_mean(x)))


def two_norm(x: Any) -> Any:
    return sg.sqrt(total(sg.square(x)))


def masked_mean(x: Any, m: Any) -> Any:
    return total(x * sg.cast(m, sg.float32)) / total(sg.cast(m, sg.float32))


NOTHING = np.array([False, False])
TINY = f32(-200.0, 0.0)
HUGE = f32(200.0, 0.0)
ZEROS = f32(0.0, 0.0)
ALIKE = f32(1.0, 1.0)

# The pattern, where the first is made and by what, a program that has it, and its data.
CLASSICS: list[tuple[str, str, Callable[..., Any], tuple[Any, ...]]] = [
    (
        "branch not taken",
        "gradient SqrtGrad",
        lambda x: total(sg.where(x > 0.0, sg.sqrt(x), 0.0)),
        (f32(0, 4),),
    ),
    ("branch not taken", "forward Sqrt", lambda x: total(sg.where(x > 0.0, sg.sqrt(x), 0.0)), (f32(-1, 4),)),
    (
        "branch not taken",
        "gradient RealDiv",
        lambda x: total(sg.where(x > 0.0, sg.log(x), 0.0)),
        (f32(0, 4),),
    ),
    (
        "branch not taken",
        "forward RealDiv",
        lambda x, y: total(sg.where(y > 0.0, x / y, 0.0)),
        (f32(0, 4), f32(0, 2)),
    ),
    ("branch not taken", "gradient Pow", lambda x: total(sg.where(x > 0.0, x**0.5, 0.0)), (f32(0, 4),)),
    (
        "branch not taken",
        "gradient Rsqrt",
        lambda x: total(sg.where(sg.abs(x) < 1.0, sg.acos(x), 0.0)),
        (f32(1, 0.5),),
    ),
    (
        "branch not taken",
        "gradient SqrtGrad",
        lambda x: sg.where(sg.reduce_any(x > 0.0), two_norm(x), 0.0),
        (ZEROS,),
    ),
    ("branch not taken", "forward Log", lambda x: total(sg.where(x > 0.0, x * sg.log(x), 0.0)), (f32(0, 4),)),
    (
        "branch not taken",
        "forward Exp",
        lambda x: total(sg.where(x > 0.0, x, sg.exp(x) - 1.0)),
        (f32(100, 4),),
    ),
    ("root at 0", "gradient SqrtGrad", lambda x: total(sg.sqrt(x)), (f32(0, 4),)),
    ("norm at 0", "gradient SqrtGrad", two_norm, (ZEROS,)),
    ("norm at 0", "gradient SqrtGrad", lambda x: sg.sqrt(total(x * x)), (ZEROS,)),
    ("log of 0", "forward Log", lambda x: total(sg.log(x)), (f32(0, 4),)),
    ("log of a negative number", "forward Log", lambda x: total(sg.log(x)), (f32(-1, 4),)),
    ("log of softmax", "forward Log", lambda x: -sg.log(sg.softmax(x))[1], (HUGE,)),
    ("log of softmax", "forward Log", lambda x: -sg.log(softmax_by_hand(x))[1], (HUGE,)),
    ("log of sigmoid", "forward Log", lambda x: total(sg.log(sg.sigmoid(x))), (TINY,)),
    ("log of 1 - sigmoid", "forward Log", lambda x: total(sg.log(1.0 - sg.sigmoid(x))), (HUGE,)),
    ("softplus written out", "forward Exp", lambda x: total(sg.log(1.0 + sg.exp(x))), (HUGE,)),
    ("softplus written out", "forward Exp", lambda x: total(sg.log1p(sg.exp(x))), (HUGE,)),
    ("log of a sum of exponentials", "forward Exp", lambda x: sg.log(total(sg.exp(x))), (HUGE,)),
    ("log of a sum of exponentials", "forward Log", lambda x: sg.log(total(sg.exp(x))), (f32(-200, -200),)),
    ("log of a product", "forward Log", lambda x: sg.log(sg.reduce_prod(x)), (f32(1e-30, 1e-30),)),
    ("0 log 0", "forward Log", lambda x: -total(x * sg.log(x)), (f32(0, 1),)),
    ("softmax without its shift", "forward Exp", lambda x: softmax_by_hand(x, False)[1], (HUGE,)),
    ("softmax without its shift", "forward Exp", lambda x: (sg.exp(x) / total(sg.exp(x)))[1], (HUGE,)),
    (
        "softmax without its shift",
        "forward RealDiv",
        lambda x: softmax_by_hand(x, False)[1],
        (f32(-200, -200),),
    ),
    ("sigmoid written out", "forward Exp", lambda x: total(1.0 / (1.0 + sg.exp(-x))), (TINY,)),
    ("overflow of exp", "forward Exp", lambda x: total(sg.exp(x)), (HUGE,)),
    ("mean over an empty mask", "forward RealDiv", masked_mean, (f32(1, 2), NOTHING)),
    ("mean over an empty mask", "forward RealDiv", lambda x, m: total(x * m) / total(m), (f32(1, 2), ZEROS)),
    ("division by 0", "forward RealDiv", lambda x: total(x / total(x)), (ZEROS,)),
    ("division by 0", "forward RealDiv", lambda x: total(1.0 / x), (f32(0, 1),)),
    ("inverse of 0", "forward Reciprocal", lambda x: total(sg.reciprocal(x)), (f32(0, 1),)),
    ("inverse root at 0", "forward Rsqrt", lambda x: total(sg.rsqrt(x)), (f32(0, 1),)),
    ("normalisation of 0", "forward RealDiv", of_norm(sg.norm), (ZEROS,)),
    ("normalisation of 0", "forward RealDiv", of_norm(sg.reduce_euclidean_norm), (ZEROS,)),
    ("normalisation of 0", "forward RealDiv", of_norm(two_norm), (ZEROS,)),
    ("division by a standard deviation of 0", "forward RealDiv", whitened(sg.reduce_std), (ALIKE,)),
    (
        "division by a standard deviation of 0",
        "forward RealDiv",
        whitened(lambda x: sg.sqrt(variance_written(x))),
        (ALIKE,),
    ),
    ("standard deviation of what is all the same", "gradient SqrtGrad", sg.reduce_std, (ALIKE,)),
    (
        "standard deviation of what is all the same",
        "gradient SqrtGrad",
        lambda x: sg.sqrt(sg.reduce_variance(x)),
        (f32(3),),
    ),
    (
        "variance by difference",
        "forward Sqrt",
        lambda x: sg.sqrt(sg.reduce_mean(x * x) - sg.square(sg.reduce_mean(x))),
        (f32(3000.1, 3000.2, 3000.1, 3000.3, 3000.1),),
    ),
    (
        "normalisation of what is all the same",
        "forward LayerNorm",
        lambda x: total(sg.layer_norm(x, epsilon=0.0)),
        (f32([1, 1]),),
    ),
    ("root of a negative number", "forward Sqrt", lambda x: total(sg.sqrt(x)), (f32(-1, 4),)),
    ("cube root at 0", "gradient RealDiv", lambda x: total(sg.cbrt(x)), (f32(0, 1),)),
    ("arc of 1", "gradient Rsqrt", lambda x: total(sg.acos(x)), (f32(1, 0),)),
    ("arc of 1", "gradient Rsqrt", lambda x: total(sg.asin(x)), (f32(-1, 0),)),
    ("arc beyond 1", "forward Acos", lambda x: total(sg.acos(x)), (f32(1.0000001, 0),)),
    ("atanh at 1", "forward Atanh", lambda x: total(sg.atanh(x)), (f32(1, 0),)),
    ("acosh at 1", "gradient RealDiv", lambda x: total(sg.acosh(x)), (f32(1, 2),)),
    ("angle of the origin", "gradient RealDiv", lambda y, x: total(sg.atan2(y, x)), (f32(0, 1), f32(0, 1))),
    ("0 to a negative power", "forward Pow", lambda x: total(x**-1.5), (f32(0, 2),)),
    ("a negative number to a fraction", "forward Pow", lambda x: total(x**1.5), (f32(-1, 2),)),
    ("gradient of a power at 0", "gradient Pow", lambda x: total(x**0.5), (f32(0, 2),)),
    ("gradient of a power at 0", "gradient Pow", lambda x, y: total(x**y), (f32(0, 2), f32(0.5, 1))),
    ("mean of nothing", "forward Mean", sg.reduce_mean, (np.zeros(0, F32),)),
    ("extremum of nothing", "forward Max", sg.reduce_max, (np.zeros(0, F32),)),
    ("all of a row masked", "forward Softmax", lambda x: total(sg.softmax(open_only(x)) * x), (MASKED,)),
    (
        "all of a row masked",
        "forward LogSoftmax",
        lambda x: total(sg.log_softmax(open_only(x))[0]),
        (MASKED,),
    ),
    ("all of a row masked", "forward Sub", lambda x: total(softmax_by_hand(open_only(x)) * x), (MASKED,)),
    ("all of a row masked", "forward Const", lambda x: sg.reduce_logsumexp(open_only(x)), (f32(-1, -1),)),
    (
        "infinities subtracted",
        "forward Sub",
        lambda x: sg.reduce_max(open_only(x)) - sg.reduce_sum(open_only(x)),
        (f32(-1, -1),),
    ),
    (
        "a mask by multiplication",
        "forward Mul",
        lambda x: total(open_only(x) * f32(0, 1)),
        (f32(-1, 1),),
    ),
    ("overflow of float16", "forward Mul", lambda x: total(x * x), (np.array([300, 1], np.float16),)),
    ("overflow of float16", "forward Sum", total, (np.array([6e4, 6e4], np.float16),)),
    ("overflow of float16", "forward Cast", lambda x: total(sg.cast(x, sg.float16)), (f32(1e5, 1),)),
    ("overflow", "forward MatMul", lambda x: total(sg.matmul(x, x)), (f32([1e30, 1], [1, 1]),)),
    (
        "inverse of a singular matrix",
        "forward MatrixInverse",
        lambda x: total(sg.inv(x)),
        (f32([1, 1], [1, 1]),),
    ),
    (
        "Cholesky factor of no positive definite matrix",
        "forward Cholesky",
        lambda x: total(sg.cholesky(x)),
        (f32([-1, 0], [0, 1]),),
    ),
    ("pole of the gamma function", "forward Lgamma", lambda x: total(sg.lgamma(x)), (f32(0, 1),)),
]


@pytest.mark.parametrize(
    ("pattern", "made", "f", "data"), CLASSICS, ids=[f"{i}-{row[0]}" for i, row in enumerate(CLASSICS)]
)
def test_a_classic_is_recognised(
    pattern: str, made: str, f: Callable[..., Any], data: tuple[Any, ...]
) -> None:
    trace = sg.trace_nan(f, *data)
    site = trace.first
    assert trace
    assert site is not None
    assert f"{site.where} {site.operation.type}" == made
    assert site.pattern == pattern
    assert site.cure
    assert site.cure.replace("\n", " ") in " ".join(trace.to_text().split())
    assert all(len(line) <= 80 for line in trace.to_text().splitlines())
    json.loads(trace.to_json())


def test_every_pattern_has_a_test() -> None:
    own = {cure.name for definition in REGISTRY.values() for cure in definition.cures}
    patterns = {pattern.name for pattern in (*PATTERNS, *GENERAL)}
    assert {row[0] for row in CLASSICS} == patterns | own | {"branch not taken"}


# What the report advises, done.
CURED: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: total(sg.where(x > 0.0, sg.sqrt(sg.where(x > 0.0, x, 1.0)), 0.0)), (f32(-1, 0, 4),)),
    (lambda x: total(sg.where(x > 0.0, 1.0 / sg.where(x > 0.0, x, 1.0), 0.0)), (f32(-1, 0, 4),)),
    (lambda x: -sg.log_softmax(x)[1], (HUGE,)),
    (lambda x: total(sg.log_sigmoid(x)), (TINY,)),
    (lambda x: total(sg.log_sigmoid(-x)), (HUGE,)),
    (sg.reduce_logsumexp, (HUGE,)),
    (lambda x: total(sg.softplus(x)), (HUGE,)),
    (lambda x: total(sg.sigmoid(x)), (TINY,)),
    (lambda x: total(sg.xlogy(x, sg.maximum(x, 1e-12))), (f32(0, 1),)),
    (sg.norm, (ZEROS,)),
    (lambda x: total(sg.l2_normalize(x, epsilon=1e-12)), (ZEROS,)),
    (lambda x, m: total(x * m) / sg.maximum(total(m), 1.0), (f32(1, 2), ZEROS)),
    (lambda x: sg.sqrt(sg.reduce_variance(x) + 1e-6), (ALIKE,)),
    (lambda x: total(sg.acos(sg.clip_by_value(x, -1 + 1e-6, 1 - 1e-6))), (f32(1, 0),)),
    (lambda x: total(sg.softmax(sg.where(x > 0.0, x, -1e9)) * x), (MASKED,)),
]


@pytest.mark.parametrize("i", range(len(CURED)))
def test_the_cure_helps(i: int) -> None:
    f, data = CURED[i]
    trace = sg.trace_nan(f, *data)
    assert not trace, trace.to_text()


def first_pattern(f: Callable[..., Any], *data: Any) -> str | None:
    site = sg.trace_nan(f, *data).first
    assert site is not None
    return site.pattern


def test_no_cure_is_guessed() -> None:
    # The branch with the root is the one that is taken; or is used elsewhere, too.
    assert first_pattern(lambda x: total(sg.where(x >= 0.0, sg.sqrt(x), 0.0)), f32(0, 4)) == "root at 0"

    def used_twice(x: Any) -> Any:
        root = sg.sqrt(x)
        return total(sg.where(x > 0.0, root, 0.0) + root)

    assert first_pattern(used_twice, f32(0, 4)) == "root at 0"
    # The sum divided by is of no mask, the numerator no exponential, the sum of no squares.
    assert first_pattern(lambda x, y: total(x) / total(y), f32(1, 2), f32(-1, 1)) == "division by 0"
    assert (
        first_pattern(lambda x, y: total(y / total(sg.exp(x))), f32(-200, -200), f32(1, 1)) == "division by 0"
    )
    assert first_pattern(lambda x: sg.sqrt(total(x)), ZEROS) == "root at 0"
    # Float64 would overflow just so; a product of NaN's making is no masking.
    assert first_pattern(lambda x: total(x * x), np.array([1e200])) is None
    assert first_pattern(lambda x: -total(x * sg.log(x + 1.0)), f32(-1, 1)) == "log of 0"


# ---------------------------------------------------------------------------------- what is reported


def test_the_where_trap_is_told_whole() -> None:
    def loss(params: Any, x: Any) -> Any:
        return total(sg.where(x > 0.0, sg.sqrt(x), 0.0) * params["größe"])

    trace = sg.trace_nan(loss, {"größe": f32(1, 2)}, f32(0, 4))
    site = trace.first
    assert site is not None
    assert site.origin is not None
    assert (site.kind, site.index, site.count, site.order) == ("nan", (0,), 1, 1)
    assert site.origin.type == "Sqrt"
    assert site.location is not None
    assert site.location.source == "sg.sqrt(x)"
    assert site.origin_location is not None
    assert site.origin_location.line == site.location.line
    assert [(x.operand, x.value) for x in site.inputs] == [("y", 0.0), ("g", 0.0)]
    assert trace.reaches == ("the gradient of x",)
    lines = trace.to_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "sg.sqrt(x)" in line)
    assert lines[at + 1].index("^") == lines[at].index("sg.sqrt(x)")
    assert lines[at + 1].count("^") == len("sg.sqrt(x)")
    assert "test_trace_nan.py" in trace.to_text()
    assert "Cure: the where" in trace.to_text()


def test_columns_count_bytes_and_long_lines_are_cut() -> None:
    def f(x: Any) -> Any:
        return total(
            x * len("ääääääääääääääääääääääääääääääääääääääääääääääää") + sg.log(x), name="sum_of_all"
        )

    lines = sg.trace_nan(f, f32(0, 1)).to_text(60).splitlines()
    at = next(i for i, line in enumerate(lines) if "sg.log(x)" in line)
    assert lines[at + 1].index("^") == lines[at].index("sg.log(x)")
    assert lines[at + 1].count("^") == len("sg.log(x)")
    assert all(len(line) <= 60 for line in lines)


def test_what_is_fed_is_named_first() -> None:
    weights = {"w": np.ones((4, 2), F32)}
    weights["w"][3, 1] = np.nan
    trace = sg.trace_nan(lambda params, x: total(x @ params["w"]), weights, np.ones((1, 4), F32))
    site = trace.first
    assert site is not None
    assert (site.source, site.name, site.index, site.kind) == ("argument", "params.w", (3, 1), "nan")
    assert trace.to_text().splitlines()[0] == "NaN: the argument params.w holds one at [3, 1]"
    # An infinity that an operation turns into a NaN: both are named.
    trace = sg.trace_nan(lambda x: total(x - x), f32(np.inf, 1))
    assert trace.first is not None
    assert (trace.first.source, trace.first.kind) == ("argument", "inf")
    assert [site.operation.type for site in trace.then] == ["Sub"]
    # One that reaches nothing is no finding.
    trace = sg.trace_nan(lambda x: total(sg.where(sg.is_nan(x), 0.0, x)), f32(np.nan, 1))
    assert not trace
    assert trace.harmless == 1


def test_inside_of_another_graph_arguments_are_still_called_by_their_paths() -> None:
    with sg.Graph().as_default() as graph:
        trace = sg.trace_nan(lambda params: total(params["w"] * 2.0), {"w": f32(1, np.nan)})
        assert trace.first is not None
        assert (trace.first.source, trace.first.name) == ("argument", "params.w")
        assert len(graph) == 0


def test_deliberate_infinities_do_not_drown_the_report() -> None:
    trace = sg.trace_nan(lambda x: total(sg.softmax(open_only(x)) * x), f32([1, -1], [0, 1]))
    assert not trace
    assert trace.harmless == 1
    assert "1 operation made NaNs or infinities of which nothing arrives." in trace.to_text()
    # Where one row is masked whole, the softmax is named, and the constant is its cause.
    trace = sg.trace_nan(lambda x: total(sg.softmax(open_only(x)) * x), MASKED)
    assert trace.first is not None
    assert trace.first.operation.type == "Softmax"
    assert trace.first.cause is not None
    assert trace.first.cause.source == "constant"
    # The constant itself, where it arrives as it is.
    trace = sg.trace_nan(open_only, f32(-1, 1))
    assert trace.first is not None
    assert trace.first.source == "constant"
    # An infinity made by an operation comes before it, whichever was there first.
    trace = sg.trace_nan(lambda x: total(open_only(x) + sg.square(x)), f32(-1e30, 1))
    assert trace.first is not None
    assert trace.first.operation.type == "Square"
    # Its NaN is not deliberate.
    trace = sg.trace_nan(lambda x: x * np.nan, 1.0)
    assert trace.first is not None
    assert (trace.first.source, trace.first.kind) == ("constant", "nan")


def test_an_infinity_that_becomes_a_nan_later() -> None:
    trace = sg.trace_nan(lambda x: total(x * (sg.log(x) - sg.log(x * 1.0))), f32(0, 1))
    assert trace.first is not None
    assert trace.first.kind == "inf"
    assert next((site.operation.type, site.kind) for site in trace.then) == ("Sub", "nan")
    assert "Then" in trace.to_text()
    trace = sg.trace_nan(lambda x, y: total(sg.log(x)) + total(sg.sqrt(y)), f32(0, 1), f32(-1, 1))
    assert trace.first is not None
    assert trace.first.operation.type == "Sqrt"
    assert trace.reaches == ("the result", "the gradient of x", "the gradient of y")


def test_numbers_without_meaning_are_noted() -> None:
    trace = sg.trace_nan(lambda x, i: x * sg.cast(i // (i - 1), sg.float32), 3.0, np.array([1, 2]))
    assert not trace
    (note,) = trace.notes
    assert note.operation.type == "FloorDiv"
    assert note.index == (0,)
    assert "divides integers by zero" in trace.to_text()
    trace = sg.trace_nan(lambda x: sg.cast(sg.log(x), sg.int32), f32(1, 0))
    assert [(note.operation.type, note.index) for note in trace.notes] == [("Cast", (1,))]


# ------------------------------------------------------------------------------------------- bodies


def test_inside_a_scan_the_step_is_named() -> None:
    def step(s: Any, x: Any) -> Any:
        return s * sg.log(x), sg.sqrt(x)

    xs = f32(3, 2, 0, 4)
    site = sg.trace_nan(lambda xs: sg.scan(step, 1.0, xs)[0], xs).first
    assert site is not None
    assert (site.operation.type, site.where, site.iteration) == ("Log", "forward", 2)
    assert site.inputs[0].label == "xs[2]"
    assert [(op.type, n) for op, n in site.around] == [("Scan", 2)]
    assert "in step 2 of Scan" in sg.trace_nan(lambda xs: sg.scan(step, 1.0, xs)[0], xs).to_text()
    # In the gradient, which goes backwards, the same step; and where the loop goes backwards itself.
    for reverse in (False, True):
        site = sg.trace_nan(lambda xs, r=reverse: total(sg.scan(step, 1.0, xs, reverse=r)[1]), xs).first
        assert site is not None
        assert site.origin is not None
        assert (site.origin.type, site.where, site.iteration) == ("Sqrt", "gradient", 2)
        assert site.pattern == "root at 0"


def test_the_where_trap_inside_bodies() -> None:
    def safe(x: Any) -> Any:
        return sg.where(x > 0.0, sg.sqrt(x), 0.0)

    bodies: list[Callable[[Any], Any]] = [
        lambda x: total(sg.map_fn(safe, x)),
        lambda x: total(sg.vmap(safe)(x)),
        lambda x: total(sg.checkpoint(safe)(x)),
        lambda x: total(sg.cond(sg.reduce_any(x > 0.0), safe, lambda x: x, x)),
        lambda x: total(sg.scan(lambda s, x: (s + safe(x), safe(x)), 0.0, x)[1]),
        lambda x: sg.fori_loop(0, 3, lambda i, s: s + total(safe(x)), 0.0),
        lambda x: total(sg.while_loop(lambda x: x[1] < 99.0, lambda x: safe(x) + x, x, maximum_iterations=9)),
        lambda x: total(sg.map_fn(lambda row: sg.map_fn(safe, row), sg.stack([x, x]))),
    ]
    for f in bodies:
        trace = sg.trace_nan(f, f32(4, 9, 0))
        assert trace.first is not None
        assert trace.first.origin is not None
        assert trace.first.origin.type == "Sqrt", trace.to_text()
        assert trace.first.pattern == "branch not taken", trace.to_text()


def test_while_loops_count_their_steps() -> None:
    def run(x: Any) -> Any:
        return sg.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * x), (0, x))[1]

    trace = sg.trace_nan(run, f32(1e3), gradient=False)
    assert trace.first is not None
    assert (trace.first.operation.type, trace.first.iteration) == ("Mul", 3)
    assert trace.first.inputs[0].label == "carry 1"
    # Of nested loops the innermost step, and all of them.
    trace = sg.trace_nan(
        lambda x: sg.map_fn(partial(sg.map_fn, lambda x: 1.0 / x), x), f32([1, 2, 3], [4, 0, 5])
    )
    assert trace.first is not None
    assert [n for _, n in trace.first.around] == [1, 1]
    assert trace.first.inputs[1].label == "x[1][1]"


def test_only_the_branch_that_runs_counts() -> None:
    def f(x: Any) -> Any:
        return sg.cond(x > 1.0, lambda: sg.log(x - 2.0), lambda: x * 2.0)

    assert not sg.trace_nan(f, 1.0)
    assert (site := sg.trace_nan(f, 2.0).first) is not None
    assert site.operation.type == "Log"


def test_gradients_of_gradients() -> None:
    def force(x: Any) -> Any:
        return total(sg.grad(lambda x: total(x**1.5))(x))

    site = sg.trace_nan(force, f32(0, 4)).first
    assert site is not None
    assert site.origin is not None
    assert (site.origin.type, site.order, site.pattern) == ("Pow", 2, "gradient of a power at 0")
    site = sg.trace_nan(lambda x: total(sg.grad(two_norm)(x)), ZEROS, gradient=False).first
    assert site is not None
    assert (site.where, site.order, site.pattern) == ("gradient", 1, "norm at 0")


def test_what_is_computed_again_counts_as_the_users() -> None:
    site = sg.trace_nan(lambda x: total(sg.checkpoint(lambda x: sg.sqrt(x) * 2.0)(x)), ZEROS).first
    assert site is not None
    assert (site.where, site.order, site.pattern) == ("gradient", 1, "root at 0")


def test_functions_with_gradients_of_their_own() -> None:
    @sg.custom_gradient
    def f(x: Any) -> Any:
        return sg.exp(x), lambda g: g / (x - x)

    site = sg.trace_nan(lambda x: f(x * 1.0), 1.0).first
    assert site is not None
    assert site.where == "gradient"
    assert site.operation.type == "RealDiv"
    # What a stop cuts off is no result.
    assert not sg.trace_nan(lambda x: total(sg.stop_gradient(sg.sqrt(x)) * x), f32(0, 1))


# -------------------------------------------------------------------------------------------- graphs


def test_graphs_with_fed_values_parameters_and_sessions() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [None], name="x")
        w = sg.parameter(f32(1, 2), name="w")
        y = total(sg.log(x) * w, name="loss")
    length = len(graph)
    assert not sg.trace_nan(y, [w, x], feed_dict={x: [1.0, 2.0]})
    trace = sg.trace_nan(y, [w], feed_dict={"x": [0.0, 2.0]})
    assert trace.first is not None
    assert trace.first.operation is graph.operation("Log")
    assert trace.reaches == ("loss:0", "the gradient of w:0")
    assert trace.first.inputs[0].label == "x"
    assert len(graph) == length
    # The first values of parameters, or those of a session, or those that are fed.
    with sg.Session(graph) as session, graph.as_default():
        session.run(sg.assign(w, f32(np.nan, 1)))
        trace = sg.trace_nan(y, [x], feed_dict={x: [1.0, 2.0]}, session=session)
    assert trace.first is not None
    assert (trace.first.source, trace.first.name, trace.first.index) == ("parameter", "w", (0,))
    trace = sg.trace_nan(y, feed_dict={x: [1.0, 2.0], w: f32(np.inf, 1)})
    assert trace.first is not None
    assert trace.first.name == "w"
    assert trace.to_text().splitlines()[1].endswith(f"{trace.first.location!r}"[-20:])
    # Without xs, and without the gradient, values alone.
    roots = (
        sg.trace_nan(y, feed_dict={x: [1.0, 2.0]}),
        sg.trace_nan(y, [x], feed_dict={x: [1, 2]}, gradient=False),
    )
    assert {trace.operations for trace in roots} == {3}


def test_gradients_that_are_there_already_are_used() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2], name="x")
        y = total(sg.sqrt(x))
        (dx,) = sg.gradients(y, [x])
    trace = sg.trace_nan(y, [x], feed_dict={x: [0.0, 1.0]})
    assert trace.first is not None
    assert trace.first.name.startswith("gradients")
    trace = sg.trace_nan(dx, feed_dict={x: [0.0, 1.0]})
    assert trace.first is not None
    assert graph.holds(trace.first.operation)


def test_errors_say_what_to_do() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [2], name="x")
        y = sg.log(x)
    with pytest.raises(sg.FeedError, match=r"x.*must be fed"):
        sg.trace_nan(y, [x])
    with pytest.raises(sg.FeedError, match=r"takes \[2\]"):
        sg.trace_nan(y, [x], feed_dict={x: [1.0]})
    with pytest.raises(sg.FeedError, match="feed_dict is a dict"):
        sg.trace_nan(y, [x], feed_dict=[1.0])  # type: ignore[arg-type]
    with pytest.raises(sg.GraphError, match="no output, operation or name"):
        sg.trace_nan(y, [x], feed_dict={1: 2.0})
    with sg.Graph().as_default():
        other = sg.placeholder(sg.float32)
    with pytest.raises(sg.GraphError, match="another graph"):
        sg.trace_nan(y, [x], feed_dict={other: 2.0, x: [1.0, 2.0]})
    with pytest.raises(sg.ArgumentError, match="session is a Session"):
        sg.trace_nan(y, session=1)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        sg.trace_nan(lambda x: 1 // 0, 1.0)


# -------------------------------------------------------------------------------------------- size


def test_it_runs_once_and_again_only_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    class Counting(Follower):
        def run(self, outputs: Any, feeds: Any) -> Any:
            runs.append(len(outputs))
            return super().run(outputs, feeds)

    monkeypatch.setattr("stopgrad.flow.nans.trace.Follower", Counting)
    sg.trace_nan(lambda x: total(sg.sqrt(x)), f32(1, 2))
    assert len(runs) == 1
    sg.trace_nan(lambda x: total(sg.sqrt(x)), f32(0, 2))
    assert len(runs) == 3


DEEP = """
    import sys
    sys.setrecursionlimit(200)
    import numpy as np
    import stopgrad as sg

    with sg.Graph().as_default():
        x = sg.placeholder(sg.float64, [2], name="x")
        y = x
        for _ in range(20_000):
            y = sg.sin(y)
        y = sg.reduce_sum(sg.sqrt(y - y) * y)
    trace = sg.trace_nan(y, [x], feed_dict={x: np.ones(2)})
    assert trace.first.origin.type == "Sqrt" and trace.operations > 60_000
    print("done")
"""


@pytest.mark.slow
def test_a_chain_of_twenty_thousand_at_a_recursion_limit_of_200() -> None:
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DEEP)], capture_output=True, text=True, check=False
    )
    assert made.stdout.strip() == "done", made.stderr[-3000:]


def test_dtypes_of_16_bits_and_complex_numbers() -> None:
    short = sg.bfloat16.numpy
    site = sg.trace_nan(lambda x: total(x * x), np.array([1e30, 1], short)).first
    assert site is not None
    assert (site.kind, site.pattern) == ("inf", "overflow")
    assert site.inputs[0].dtype == "bfloat16"
    site = sg.trace_nan(lambda x: total(sg.abs(sg.log(x))), np.array([0j, 1 + 1j])).first
    assert site is not None
    assert (site.operation.type, site.pattern, site.inputs[0].max) == ("Log", "log of 0", abs(1 + 1j))
    json.dumps(site.to_dict(), allow_nan=False)


# ------------------------------------------------------------------------------------------ property


ELEMENTWISE: list[Callable[..., Any]] = [
    sg.add, sg.subtract, sg.multiply, sg.divide, sg.maximum,
    sg.sqrt, sg.log, sg.exp, sg.square, sg.negative, sg.reciprocal, sg.stop_gradient,
]  # fmt: skip
OTHERS: list[Callable[[Any], Any]] = [
    lambda x: sg.reverse(x, [0]),
    lambda x: sg.concat([x[1:], x[:1]], 0),
    lambda x: x + total(x),
    lambda x: sg.reshape(sg.reshape(x, [2, 2]), [4]),
    lambda x: sg.gather(x, np.array([3, 1, 1, 0])),
    lambda x: sg.where(x > 0.0, x, 1.0),
    lambda x: sg.where(x < 100.0, x, -np.inf),
    lambda x: sg.softmax(x),
    lambda x: sg.reduce_max(sg.reshape(x, [2, 2]), 1, keepdims=True)[:, 0] @ np.ones((2, 4)),
]
EDGES = [0.0, 0.0, 1.0, -1.0, 2.0, 1e200, np.inf, np.nan, -np.inf]


def random_graph(generator: np.random.Generator) -> tuple[sg.Output, list[sg.Output], dict[sg.Output, Any]]:
    with sg.Graph().as_default():
        xs = [sg.placeholder(sg.float64, [4], name=f"x{i}") for i in range(2)]
        values = list(xs)
        for _ in range(generator.integers(2, 9)):
            if generator.random() < 0.7:
                f = ELEMENTWISE[generator.integers(len(ELEMENTWISE))]
                count = 2 if f in ELEMENTWISE[:5] else 1
                values.append(f(*[values[i] for i in generator.integers(len(values), size=count)]))
            else:
                values.append(OTHERS[generator.integers(len(OTHERS))](values[-1]))
        y = total(values[-1])
    limit = len(EDGES) if generator.random() < 0.3 else 6
    feeds = {x: np.array([EDGES[i] for i in generator.integers(limit, size=4)]) for x in xs}
    return y, xs, feeds


MOVED = {"ConcatV2", "Pack", "StridedSlice", "StridedSliceGrad", "GatherV2", "ReverseV2", "Reshape"}
MOVED |= {"BroadcastTo", "Transpose", "Fill"}


class ByHand:
    """Walks back from bad elements, each value fetched by itself: which operation is the first?"""

    def __init__(self, feeds: dict[sg.Output, Any], graph: sg.Graph) -> None:
        self.session = sg.Session(graph, engine="numpy", strict=True)
        self.feeds = feeds
        self.values: dict[sg.Output, Any] = {}
        self.known: dict[tuple[sg.Output, int], set[int]] = {}

    def value(self, x: sg.Output) -> Any:
        if x not in self.values:
            self.values[x] = np.asarray(self.session.run(x, self.feeds))
        return self.values[x]

    def sources(self, op: sg.Operation, i: int) -> list[tuple[sg.Output, int]]:
        """Flat positions of operands' elements that an element of a result is made of."""
        shape = self.value(op.outputs[0]).shape
        floating = [x for x in op.inputs if x.dtype.is_floating]
        places = {x: np.arange(self.value(x).size).reshape(self.value(x).shape) for x in floating}
        if op.type == "SelectV2":
            chosen = np.broadcast_to(self.value(op.inputs[0]), shape).flat[i]
            floating = [op.inputs[1 if chosen else 2]]
        if op.type in MOVED:
            # Where each element went, by sending its position along.
            start, found = 1, []
            sent = {}
            for x in op.inputs:
                size = self.value(x).size
                sent[x] = np.arange(start, start + size).reshape(self.value(x).shape)
                start += size
            arrays = [sent[x] if x.dtype.is_floating else self.value(x) for x in op.inputs]
            attributes = dict(op.attributes)
            got = int(np.asarray(op.definition.lower(np, *arrays, **attributes)).flat[i])
            for x in dict.fromkeys(floating):
                found += [(x, int(j)) for j in np.flatnonzero(sent[x] == got)]
            return found
        if op.type in ("Sum", "Max", "Softmax"):
            (x,) = floating
            kept = op.attributes.get("keepdims", op.type == "Softmax")
            whole = np.broadcast_to(places[x], self.value(x).shape)
            axis = tuple(op.attributes["axis"])
            where = np.zeros(self.value(x).shape, bool)
            for index in np.ndindex(*where.shape):
                reduced = tuple(0 if a in axis and op.type != "Softmax" else n for a, n in enumerate(index))
                if op.type == "Softmax":
                    where[index] = True
                    continue
                if not kept:
                    reduced = tuple(n for a, n in enumerate(index) if a not in axis)
                where[index] = np.ravel_multi_index(reduced, shape) == i if shape else True
            return [(x, int(j)) for j in whole[where]]
        if op.type in ("MatMul", "TensorScatterAdd"):
            return [(x, j) for x in floating for j in range(self.value(x).size)]
        return [(x, int(np.broadcast_to(places[x], shape).flat[i])) for x in floating]

    def roots(self, y: sg.Output, i: int) -> set[int]:
        """Ids of the operations with which the story of a bad element begins."""
        key = (y, i)
        if key not in self.known:
            bad = self.value(y).flat[i]
            found = [] if y in self.feeds else self.sources(y.op, i)
            nans = [(x, j) for x, j in found if np.isnan(self.value(x).flat[j])]
            infs = [(x, j) for x, j in found if np.isinf(self.value(x).flat[j])]
            chosen = (nans or infs) if np.isnan(bad) else (infs or nans)
            roots = {r for x, j in chosen for r in self.roots(x, j)} or {y.op.id}
            if chosen is infs and infs:
                # A constant's infinity is deliberate: others come first; turned into a NaN, it is none.
                own = {r for r in roots if y.graph.operations[r].type != "Const"}
                roots = own or ({y.op.id} if np.isnan(bad) else roots)
            self.known[key] = roots
        return self.known[key]


@pytest.mark.parametrize("seed", range(150))
def test_it_names_what_walking_back_by_hand_finds(seed: int) -> None:
    y, xs, feeds = random_graph(np.random.default_rng(seed))
    trace = sg.trace_nan(y, xs, feed_dict=feeds)
    with y.graph.as_default():
        results = [y, *[g for g in sg.gradients(y, xs) if g is not None]]
    hand = ByHand(feeds, y.graph)
    bad = [(r, int(i)) for r in results for i in np.flatnonzero(~np.isfinite(hand.value(r)))]
    assert bool(trace) == bool(bad)
    if bad:
        assert trace.first is not None
        begun = {r for y, i in bad for r in hand.roots(y, i)}
        deliberate = {r for r in begun if y.graph.operations[r].type == "Const"}
        assert trace.first.operation.id == min(begun - deliberate or deliberate), trace.to_text()


def test_the_property_test_meets_many_kinds() -> None:
    seen = set()
    for seed in range(150):
        y, xs, feeds = random_graph(np.random.default_rng(seed))
        site = sg.trace_nan(y, xs, feed_dict=feeds).first
        seen.add(site and (site.where, site.kind, site.source is None))
    expected = itertools.product(("forward", "gradient"), ("nan", "inf"), (True,))
    assert seen >= {None, ("forward", "nan", False), ("forward", "inf", False), *expected}


def moving_samples() -> list[Any]:
    made = []
    for name in sorted(name for name, definition in REGISTRY.items() if definition.moves):
        definition = REGISTRY[name]
        for i, one in enumerate(definition.samples):
            drawn = [
                v.draw(np.random.default_rng(i), {}) if isinstance(v, Values) else v for v in one.operands
            ]
            if any(a.dtype.kind == "f" and a.size for a in drawn):
                made.append(pytest.param(definition, drawn, one.attributes, id=f"{name}-{i}"))
    return made


@pytest.mark.parametrize(("definition", "drawn", "attributes"), moving_samples())
def test_what_moves_elements_moves_marks(
    definition: Any, drawn: list[Any], attributes: dict[str, Any]
) -> None:
    """Each infinite element of an operand is found where the operation put it, and nowhere else."""
    for k, array in enumerate(drawn):
        for place in range(array.size if array.dtype.kind == "f" else 0):
            arrays = [np.array(a) for a in drawn]
            arrays[k].flat[place] = np.inf
            other = [j for j in range(arrays[k].size) if j != place]
            if other:
                arrays[k].flat[other[0]] = np.nan
            with sg.Graph().as_default():
                xs = [sg.placeholder(a.dtype, a.shape) for a in arrays]
                values = definition.canonical([attributes[name] for name in definition.attributes])
                ys = emit(definition, tuple(xs), values).outputs
            follower = Follower({})
            for value, marks in follower.run(ys, dict(zip(xs, arrays, strict=True))):
                if marks is None:
                    assert value.dtype.kind != "f" or np.isfinite(value).all()
                    continue
                kinds = np.array([follower.events[number(m) - 1].kind if m else "" for m in marks.flat])
                assert (
                    kinds == np.where(np.isnan(value), "nan", np.where(np.isinf(value), "inf", "")).flat
                ).all()
                assert all(one.operation.type == "Placeholder" for one in follower.events)


@pytest.mark.parametrize("reverse", [False, True])
def test_what_a_loop_stacks_is_marked_where_its_steps_were(reverse: bool) -> None:
    with sg.Graph().as_default():
        x, c = sg.placeholder(sg.float32, [3]), sg.placeholder(sg.float32, ())
        last, (logs, twice) = sg.scan(lambda c, t: (c + 1.0, (sg.log(t), t * 2.0)), c, x, reverse=reverse)
        ys = [last, logs, twice, logs[1], logs[2]]
    follower = Follower({})
    found = follower.run(ys, {c: np.zeros((), np.float32), x: np.array([1.0, 0.0, -1.0], np.float32)})
    told = [
        [follower.events[number(m) - 1].around if m else () for m in np.ravel(0 if marks is None else marks)]
        for _, marks in found
    ]
    first, second = [(last.op, 1)], [(last.op, 2)]
    assert [[list(around) for around in one] for one in told] == [
        [[]],
        [[], first, second],
        [[]],
        [first],
        [second],
    ]
