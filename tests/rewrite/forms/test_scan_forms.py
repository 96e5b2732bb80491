"""Loops with their work moved out of them compute what they did, and less of it at every step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from forms_tools import ENGINES
from random_programs import Stopgrad, made, point, quantities

import stopgrad as sg
from stopgrad.base.structure import flatten
from stopgrad.engines.numpy import NumPyEngine
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Operation, Output
from stopgrad.rewrite import Rewritten, formed, prepare
from stopgrad.rewrite.forms.scans import FORMS

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


class Case:
    """A function of arrays, and the gradients of what it returns, weighed: plain, and in its form."""

    def __init__(self, f: Function, arrays: Sequence[Array], order: int = 1) -> None:
        self.arrays = [np.asarray(a) for a in arrays]
        with sg.Graph().as_default():
            xs = [sg.placeholder(str(a.dtype), a.shape) for a in self.arrays]
            live = [x for x in xs if x.dtype.is_floating]
            ys = list(f(*xs))
            wanted = [*ys]
            for _ in range(order):
                ys = sg.gradients(_weighed(ys), live, unconnected_gradients="zero")
                wanted += ys
            self.plain = prepare(wanted, xs)
        self.form = formed(self.plain, FORMS)

    def run(self, done: Rewritten, engine: Any = None) -> list[Array]:
        compiled = (engine or NumPyEngine()).compile(done.inputs, done.outputs)
        return [np.asarray(v) for v in compiled(self.arrays)]

    def loops(self, done: Rewritten | None = None) -> list[Operation]:
        done = done or self.form
        return [op for op in done.graph.subgraph_to(done.outputs) if op.type == "Scan"]

    def inside(self, done: Rewritten | None = None) -> list[Counter[str]]:
        """For each loop, how often each operation occurs at a step."""
        return [Counter(op.type for op in walk(loop.body.operations())) for loop in self.loops(done)]

    def products(self, done: Rewritten | None = None) -> list[int]:
        return [found["MatMul"] for found in self.inside(done)]

    def is_changed(self) -> bool:
        return self.inside() != self.inside(self.plain)


def _weighed(ys: Sequence[Output]) -> Output:
    return sg.add_n(
        [sg.reduce_sum(y * np.cos(np.arange(y.type.size)).reshape(y.shape).astype(y.dtype.numpy)) for y in ys]
    )


def agree(f: Function, *arrays: Array, order: int = 1, xla: bool = True) -> Case:
    """Hold the form against the loop as written: in float64 to its last digits, in float32 on the engine."""
    case = Case(f, [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays], order)
    expected = case.run(case.plain)
    close(case.run(case.form), expected, 1e-11)
    for engine in ENGINES if xla else ():
        single = Case(f, [a.astype(np.float32) if a.dtype.kind == "f" else a for a in arrays], order)
        close(single.run(single.form, engine), expected, 2e-4)
    return case


def close(made: Sequence[Array], expected: Sequence[Array], rtol: float) -> None:
    for got, want in zip(made, expected, strict=True):
        assert got.shape == want.shape
        scale = max(np.max(np.abs(want[np.isfinite(want)]), initial=0.0), 1.0)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * scale)


def normal(*shape: int, seed: int = 0, scale: float = 0.5) -> Array:
    return np.random.default_rng([seed, *shape]).normal(size=shape) * scale


# ------------------------------------------------------------------------------------- random programs


def some_loop(seed: int) -> tuple[Function, list[Array]]:
    """A scan over random operations on matrices [3, 4], and its arguments."""
    chance = random.Random(seed)
    carries, sequences, constants = chance.randint(0, 3), chance.randint(0, 2), chance.randint(1, 2)
    length = chance.choice([0, 1, 2, 3, 5, 7])
    steps = [chance.choice(STEPS) for _ in range(chance.randint(2, 9))]
    picks = [chance.random() for _ in range(400)]
    sums = [chance.choice(["sum", "carry", "fixed", "any"]) for _ in range(carries)]
    results, reverse = chance.randint(0 if carries else 1, 2), chance.random() < 0.5

    def f(*xs: Output) -> list[Any]:
        n = carries + sequences
        fixed, weights, mats = xs[n : n + constants], xs[n + constants], xs[n + constants + 1]

        def step(state: Any, part: Any) -> Any:
            draw = iter(picks)
            # The carry that is a sum is in sight of no step.
            seen = [
                *[c for c, how in zip(state, sums, strict=True) if how != "sum"],
                *part[:-1],
                *fixed,
            ]
            pick = lambda some: some[int(next(draw) * len(some))]
            matrices = [weights, weights, part[-1]]
            for one in steps:
                seen.append(one(pick, seen, matrices))
            ends = []
            for c, how in zip(state, sums, strict=True):
                made = {
                    "sum": lambda c=c: c + pick(seen) if next(draw) < 0.5 else pick(seen) + c + pick(seen),
                    "carry": lambda c=c: sg.tanh(c + pick(seen)),
                    "fixed": lambda c=c: c,
                    "any": lambda: pick(seen),
                }[how]()
                ends.append(made)
            # Sums of products, as the generator makes them, are tried through gradients.
            return tuple(ends), tuple(pick(seen) for _ in range(results))

        parts = (*xs[carries:n], mats)
        last, made = sg.scan(step, tuple(xs[:carries]), parts, reverse=reverse)
        return [*last, *made]

    arrays = [normal(3, 4, seed=seed + i) for i in range(carries)]
    arrays += [normal(length, 3, 4, seed=seed + 10 + i) for i in range(sequences)]
    arrays += [normal(3, 4, seed=seed + 20 + i) for i in range(constants)]
    return f, [*arrays, normal(4, 4, seed=seed + 30), normal(length, 4, 4, seed=seed + 40)]


def _halves(pick: Any, seen: Any, _: Any) -> Any:
    a, b = sg.split(pick(seen), 2, axis=1)
    return sg.concat([b, a], axis=1)


STEPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda pick, seen, mats: sg.matmul(pick(seen), pick(mats)),
    lambda pick, seen, mats: sg.matmul(pick(seen), pick(mats), transpose_b=True),
    lambda pick, seen, mats: sg.transpose(sg.matmul(pick(mats), pick(seen), transpose_b=True)),
    lambda pick, seen, mats: sg.einsum("ij,jk->ik", pick(seen), pick(mats)),
    lambda pick, seen, mats: sg.matmul(sg.matmul(pick(seen), pick(seen), transpose_b=True), pick(seen)),
    lambda pick, seen, mats: sg.tanh(pick(seen)),
    lambda pick, seen, mats: sg.add(pick(seen), pick(seen)),
    lambda pick, seen, mats: sg.multiply(pick(seen), pick(seen)),
    lambda pick, seen, mats: sg.sigmoid(pick(seen)) - pick(seen),
    lambda pick, seen, mats: pick(seen) + sg.reduce_sum(pick(seen), axis=0),
    lambda pick, seen, mats: pick(seen) * sg.reduce_mean(pick(seen)),
    lambda pick, seen, mats: sg.stop_gradient(pick(seen)) * 0.5,
    _halves,
]


@pytest.mark.parametrize(
    "seed", [*range(1, 9), *(pytest.param(n, marks=pytest.mark.slow) for n in (0, *range(9, 150)))]
)
def test_a_random_loop_computes_what_it_did(seed: int) -> None:
    f, arrays = some_loop(seed)
    agree(f, *arrays, order=2 if seed % 3 == 0 else 1, xla=seed % 15 == 7)


@pytest.mark.slow
def test_random_loops_are_changed() -> None:
    changed = sum(Case(*some_loop(seed)).is_changed() for seed in range(150))
    assert changed >= 50


# ------------------------------------------------------------------------------------------- networks

STEPS_, BATCH, INPUTS, WIDTH = 5, 3, 4, 6


def lstm(w: Any, u: Any, b: Any, xs: Any, h: Any, c: Any, reverse: bool = False) -> list[Any]:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = sg.split(x @ w + h @ u + b, 4, axis=-1)
        c = sg.sigmoid(f) * c + sg.sigmoid(i) * sg.tanh(g)
        h = sg.sigmoid(o) * sg.tanh(c)
        return (h, c), h

    (h, c), states = sg.scan(step, (h, c), xs, reverse=reverse)
    return [h, c, states]


def lstm_arrays(steps: int = STEPS_) -> list[Array]:
    return [
        *(normal(INPUTS, 4 * WIDTH), normal(WIDTH, 4 * WIDTH), normal(4 * WIDTH)),
        *(normal(steps, BATCH, INPUTS), normal(BATCH, WIDTH), normal(BATCH, WIDTH, seed=1)),
    ]


def test_an_lstm_has_one_product_at_each_step() -> None:
    case = agree(lstm, *lstm_arrays())
    assert case.products(case.plain) == [2, 4]
    assert case.products() == [1, 1]
    # Forward one product, backward those for both weights and the inputs.
    outside = Counter(op.type for op in case.form.graph.subgraph_to(case.form.outputs))
    assert outside["MatMul"] == 4
    # The sums for the weights and the bias are no carries.
    assert [loop.carries for loop in case.loops(case.plain)] == [2, 5]
    assert [loop.carries for loop in case.loops()] == [2, 2]


def test_no_step_multiplies_with_a_transposed_weight() -> None:
    back = agree(lstm, *lstm_arrays()).loops()[1]
    products = [op for op in back.body.operations() if op.type == "MatMul"]
    assert [op.transpose_b for op in products] == [False]


def test_an_lstm_from_the_last_step_to_the_first() -> None:
    case = agree(lambda *xs: lstm(*xs, reverse=True), *lstm_arrays())
    assert case.products() == [1, 1]
    assert [loop.reverse for loop in case.loops()] == [True, False]


def test_second_derivatives_of_an_lstm() -> None:
    case = agree(lstm, *lstm_arrays(), order=2)
    assert sum(case.products()) < sum(case.products(case.plain))


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_few_steps(steps: int) -> None:
    case = agree(lstm, *lstm_arrays(steps))
    assert case.is_changed() == (steps > 1)


def gru(w: Any, u: Any, v: Any, b: Any, xs: Any, h: Any) -> list[Any]:
    def step(h: Any, x: Any) -> Any:
        given = x @ w + b
        z, r = sg.split(sg.sigmoid(given[:, : 2 * WIDTH] + h @ u), 2, axis=-1)
        new = sg.tanh(given[:, 2 * WIDTH :] + (r * h) @ v)
        h = (1.0 - z) * h + z * new
        return h, h

    return list(sg.scan(step, h, xs))


def gru_arrays() -> list[Array]:
    return [
        *(normal(INPUTS, 3 * WIDTH), normal(WIDTH, 2 * WIDTH), normal(WIDTH, WIDTH), normal(3 * WIDTH)),
        *(normal(STEPS_, BATCH, INPUTS), normal(BATCH, WIDTH)),
    ]


def test_a_gru_has_two_products_at_each_step() -> None:
    case = agree(gru, *gru_arrays())
    assert case.products(case.plain) == [3, 6]
    assert case.products() == [2, 2]
    # The bias is added before the loop.
    assert len(case.loops()[0].inputs) == len(case.loops(case.plain)[0].inputs) - 2


def test_a_network_of_vectors() -> None:
    def rnn(w: Any, u: Any, xs: Any, h: Any) -> list[Any]:
        def step(h: Any, x: Any) -> Any:
            h = sg.tanh(w @ x + u @ h)
            return h, h

        return list(sg.scan(step, h, xs))

    arrays = [normal(WIDTH, INPUTS), normal(WIDTH, WIDTH), normal(STEPS_, INPUTS), normal(WIDTH)]
    case = agree(rnn, *arrays)
    assert case.products() == [1, 1]
    assert [loop.carries for loop in case.loops()] == [1, 1]


def test_what_only_results_depend_on_is_computed_after_the_loop() -> None:
    def read_out(w: Any, v: Any, b: Any, xs: Any, h: Any) -> list[Any]:
        def step(h: Any, x: Any) -> Any:
            h = sg.tanh(x + h @ w)
            return h, sg.softmax(h @ v + b)

        return [sg.scan(step, h, xs)[1]]

    arrays = [
        normal(WIDTH, WIDTH),
        normal(WIDTH, 7),
        normal(7),
        normal(STEPS_, BATCH, WIDTH),
        normal(BATCH, WIDTH),
    ]
    case = agree(read_out, *arrays)
    assert case.products(case.plain) == [2, 4]
    assert case.products() == [1, 1]
    assert case.inside()[0] == Counter({"MatMul": 1, "AddV2": 1, "Tanh": 1})


def test_a_loss_that_is_added_up_is_computed_after_the_loop() -> None:
    def loss(w: Any, v: Any, xs: Any, h: Any) -> list[Any]:
        def step(state: Any, x: Any) -> Any:
            h, total = state
            h = sg.tanh(x + h @ w)
            return (h, total + sg.reduce_sum(sg.square(h @ v), axis=-1)), None

        return [sg.scan(step, (h, sg.zeros([BATCH], h.dtype)), xs)[0][1]]

    arrays = [normal(WIDTH, WIDTH), normal(WIDTH, 7), normal(STEPS_, BATCH, WIDTH), normal(BATCH, WIDTH)]
    case = agree(loss, *arrays)
    assert case.loops()[0].carries == 1
    assert case.products() == [1, 1]


def test_weights_in_the_carry_that_stay_as_they_are() -> None:
    def f(w: Any, xs: Any, h: Any) -> list[Any]:
        def step(state: Any, x: Any) -> Any:
            w, h = state
            return (w, sg.tanh(x @ w + h)), None

        return list(sg.scan(step, (w, h), xs)[0])

    case = agree(f, normal(4, 4), normal(STEPS_, 3, 4), normal(3, 4))
    assert case.products()[0] == 0
    assert case.loops()[0].carries == 1


def test_products_with_what_every_step_makes_of_a_weight() -> None:
    def f(w: Any, v: Any, xs: Any, h: Any) -> list[Any]:
        def step(h: Any, x: Any) -> Any:
            h = sg.tanh(h + x @ sg.softmax(w))
            return h, h @ (v * 2.0)

        return list(sg.scan(step, h, xs))

    case = agree(f, normal(4, 4), normal(4, 5), normal(STEPS_, 3, 4), normal(3, 4))
    assert case.inside()[0] == Counter({"AddV2": 1, "Tanh": 1})


def test_a_loop_without_a_carry_is_gone_if_it_is_a_product() -> None:
    case = agree(lambda w, xs: [sg.map_fn(lambda x: sg.tanh(x @ w), xs)], normal(4, 5), normal(STEPS_, 3, 4))
    assert case.products() == []


def test_loops_in_loops() -> None:
    def f(w: Any, u: Any, xs: Any, h: Any) -> list[Any]:
        def outer(h: Any, part: Any) -> Any:
            return sg.scan(lambda h, x: (sg.tanh(x @ w + h @ u), h), h, part)

        return list(sg.scan(outer, h, xs))

    case = agree(f, normal(4, 6), normal(6, 6), normal(3, 2, 5, 4), normal(5, 6))
    assert case.products(case.plain) == [2, 4]
    assert case.products() == [1, 1]
    assert [loop.carries for loop in case.loops()] == [1, 1]


def test_loops_in_many_loops() -> None:
    """The time does not double with every level."""

    def f(w: Any, h: Any) -> list[Any]:
        def nested(h: Any, level: int) -> Any:
            if not level:
                return sg.tanh(h @ w)
            return sg.scan(lambda h, _: (nested(h, level - 1), None), h, length=2)[0]

        return [nested(h, 40)]

    case = Case(f, [normal(4, 4), normal(3, 4)], order=0)
    assert sum(case.products()) == 1


def test_weights_with_axes_for_examples() -> None:
    """Products that are summed over examples are one product over these and the steps."""

    def f(w: Any, xs: Any, h: Any) -> list[Any]:
        return [sg.scan(lambda h, x: (sg.tanh(h @ w + x), None), h, xs)[0]]

    case = agree(f, normal(4, 4), normal(STEPS_, 2, 3, 4), normal(2, 3, 4))
    assert [loop.carries for loop in case.loops()] == [1, 1]


# ---------------------------------------------------------------------------------------- near misses


def test_a_product_with_a_weight_that_changes_stays() -> None:
    def f(w: Any, xs: Any) -> list[Any]:
        return list(sg.scan(lambda w, x: (w * 0.9, x @ w), w, xs))

    assert Case(f, [normal(4, 4), normal(STEPS_, 3, 4)], order=0).products() == [1]
    agree(f, normal(4, 4), normal(STEPS_, 3, 4))


def test_a_sum_that_is_read_stays() -> None:
    def f(a: Any, xs: Any) -> list[Any]:
        def step(total: Any, x: Any) -> Any:
            return total + sg.matmul(x, x, transpose_a=True), sg.reduce_sum(total)

        return list(sg.scan(step, a, xs))

    case = Case(f, [normal(4, 4), normal(STEPS_, 3, 4)], order=0)
    assert [loop.carries for loop in case.loops()] == [1]
    assert case.products() == [1]
    agree(f, normal(4, 4), normal(STEPS_, 3, 4))


def test_a_sum_whose_next_value_is_handed_out_stays() -> None:
    def f(a: Any, xs: Any) -> list[Any]:
        def step(total: Any, x: Any) -> Any:
            total = total + sg.matmul(x, x, transpose_a=True)
            return total, total

        return list(sg.scan(step, a, xs))

    case = agree(f, normal(4, 4), normal(STEPS_, 3, 4))
    assert case.loops()[0].carries == 1


def test_what_is_added_twice_is_no_sum() -> None:
    f = lambda w, a, xs: [sg.scan(lambda c, x: (c + c + x @ w, None), a, xs)[0]]
    case = agree(f, normal(4, 4), normal(3, 4), normal(STEPS_, 3, 4))
    assert case.loops()[0].carries == 1


@pytest.mark.parametrize(("terms", "width", "stays"), [(8, 100, 0), (8, 5000, 1), (300, 5000, 0)])
def test_a_product_stays_that_is_cheaper_than_reading_it(terms: int, width: int, stays: int) -> None:
    f = lambda w, xs, h: [sg.scan(lambda h, x: (sg.tanh(h + x @ w), None), h, xs)[0]]
    case = Case(f, [normal(terms, width), normal(3, 1, terms), normal(1, width)], order=0)
    assert case.products() == [stays]


def test_what_would_need_much_memory_stays() -> None:
    def f(w: Any, xs: Any, h: Any) -> list[Any]:
        return [sg.scan(lambda h, x: (h + sg.reduce_sum(sg.tanh(x @ w + h)), None), h, xs)[0]]

    small = [normal(2, 8), normal(50, 16, 2), normal(1)]
    assert Case(f, small, order=0).products() == [0]
    # 50 · 40 · 4,000 numbers of 4 bytes are more than 16 MiB, and more than four times the sequence.
    large = [normal(300, 4000), normal(50, 40, 300), normal(1)]
    assert Case(f, [a.astype(np.float32) for a in large], order=0).products() == [1]


# -------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_extremes_are_where_they_were(value: float) -> None:
    arrays = lstm_arrays()
    arrays[3][2, 1, 0] = value
    case = Case(lstm, arrays)
    for got, expected in zip(case.run(case.form), case.run(case.plain), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_sums_in_16_bits_are_made_as_they_were() -> None:
    """What is rounded at every step is added up as it is."""
    case = Case(lstm, [a.astype(np.float16) for a in lstm_arrays()])
    for got, expected in zip(case.run(case.form), case.run(case.plain), strict=True):
        np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=5e-3, atol=5e-3)


def test_axes_of_size_zero() -> None:
    agree(
        lstm,
        *[a[:, :0] if a.shape[0] == STEPS_ else a[:0] if a.shape[0] == BATCH else a for a in lstm_arrays()],
    )


# ------------------------------------------------------------------------- programs of nested constructs


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 120, 3))
def test_a_random_program_computes_what_it_did(seed: int) -> None:
    """Values, gradients, second derivatives, derivatives along a direction; of loops in branches in loops."""
    at = point(seed)

    def f(*xs: Output) -> list[Output]:
        found = quantities(made(seed), sg, Stopgrad)(*xs)
        return [y if isinstance(y, Output) else sg.constant(y) for y in flatten(found)[0]]

    case = Case(f, at, order=0)
    close(case.run(case.form), case.run(case.plain), 1e-10)
