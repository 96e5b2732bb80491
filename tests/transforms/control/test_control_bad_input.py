"""Bad input to control flow: the error names construct, rule and the user's lines; nothing stays behind.

Each case is a function whose line that calls the construct says ``# call``, and whose line inside a body that
is to blame says ``# body``. The error must show these lines.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

HERE = __file__


@dataclass
class Setting:
    """Tensors to use: of a graph, or arrays where there is none."""

    v: Any
    d: Any
    i: Any
    s: Any
    b: Any
    rows: Any
    five: Any
    p: Any
    graph: Any = None
    text: str = ""

    def settled(self) -> None:
        """What has been built so far stays; from here on, an error leaves nothing."""
        if self.graph is not None:
            self.text = self.graph.to_text()


VALUES = {
    "v": np.array([1.0, 2.0, 3.0], np.float32),
    "d": np.array([1.0, 2.0, 3.0]),
    "i": np.int32(1),
    "s": np.float32(0.5),
    "b": np.array([True, False]),
    "rows": np.ones((4, 3), np.float32),
    "five": np.ones((5, 3), np.float32),
    "p": np.True_,
}

Case = Callable[[Setting], Any]


@dataclass(frozen=True)
class Bad:
    case: Case
    error: type[Exception]
    words: tuple[str, ...]
    only_in_a_graph: bool

    @property
    def name(self) -> str:
        return self.case.__name__


BAD: list[Bad] = []


def bad(error: type[Exception], *words: str, only_in_a_graph: bool = False) -> Callable[[Case], Case]:
    """Decorator: this is refused with an error that holds these words."""

    def note(case: Case) -> Case:
        BAD.append(Bad(case, error, words, only_in_a_graph))
        return case

    return note


def marked(case: Case, mark: str) -> list[str]:
    """The lines of a case that bear a mark, as errors print them."""
    lines, first = inspect.getsourcelines(case)
    return [f"{HERE}:{first + n}" for n, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}")]


# ------------------------------------------------------------------- a body that changes its carry


@bad(sg.ArgumentError, "scan", "carry", "structure")
def scan_with_another_structure(t: Setting) -> Any:
    return sg.scan(lambda c, x: ((c, c), x), t.v, t.rows)  # call


@bad(sg.ArgumentError, "scan", "carry", "structure")
def scan_with_another_key(t: Setting) -> Any:
    return sg.scan(lambda c, x: ({"b": c["a"]}, x), {"a": t.v}, t.rows)  # call


@bad(sg.ArgumentError, "while_loop", "structure")
def while_with_one_variable_too_few(t: Setting) -> Any:
    return sg.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1,), (t.i, t.v))  # call


@bad(sg.ArgumentError, "while_loop", "structure")
def while_with_another_structure(t: Setting) -> Any:
    return sg.while_loop(lambda a: a["x"] < 3, lambda a: {"y": a["x"]}, {"x": t.s})  # call


@bad(sg.ArgumentError, "fori_loop", "carry", "structure")
def fori_with_another_structure(t: Setting) -> Any:
    return sg.fori_loop(0, 3, lambda i, a: [a, a], t.v)  # call


@bad(sg.DTypeError, "scan", "carry", "dtype", "float32", "float64", "sg.cast")
def scan_with_another_dtype(t: Setting) -> Any:
    def step(c: Any, x: Any) -> Any:
        wider = sg.cast(c, sg.float64)  # body
        return wider, x

    return sg.scan(step, t.v, t.rows)  # call


@bad(sg.DTypeError, "scan", "carry at a.0", "dtype", "float32", "int32")
def scan_with_another_dtype_somewhere(t: Setting) -> Any:
    def step(c: Any, x: Any) -> Any:
        number = sg.cast(c["a"][0], sg.int32)  # body
        return {"a": (number,), "b": c["b"]}, x

    return sg.scan(step, {"a": (t.v,), "b": t.v}, t.rows)  # call


@bad(sg.DTypeError, "while_loop", "dtype", "int32", "float32")
def while_with_another_dtype(t: Setting) -> Any:
    def body(i: Any, v: Any) -> Any:
        number = sg.cast(i, sg.float32)  # body
        return number, v

    return sg.while_loop(lambda i, v: i < 3, body, (t.i, t.v))  # call


@bad(sg.DTypeError, "fori_loop", "carry", "dtype", "float32", "float64")
def fori_with_another_dtype(t: Setting) -> Any:
    def body(i: Any, a: Any) -> Any:
        return sg.cast(a, sg.float64)  # body

    return sg.fori_loop(0, 3, body, t.v)  # call


@bad(sg.ShapeError, "scan", "carry", "shape", "[3]", "[6]")
def scan_with_another_shape(t: Setting) -> Any:
    def step(c: Any, x: Any) -> Any:
        longer = sg.concat([c, c], 0)  # body
        return longer, x

    return sg.scan(step, t.v, t.rows)  # call


@bad(sg.ShapeError, "while_loop", "shape", "[3]", "float32[]")
def while_with_another_shape(t: Setting) -> Any:
    def body(i: Any, v: Any) -> Any:
        total = sg.reduce_sum(v)  # body
        return i + 1, total

    return sg.while_loop(lambda i, v: i < 3, body, (t.i, t.v))  # call


@bad(sg.ShapeError, "fori_loop", "carry", "shape", "[3]", "[4, 3]")
def fori_with_another_shape(t: Setting) -> Any:
    def body(i: Any, a: Any) -> Any:
        return a + t.rows  # body

    return sg.fori_loop(0, 3, body, t.v)  # call


# ----------------------------------------------------------------------- functions that disagree


@bad(sg.ArgumentError, "cond", "structure", "true_fn", "false_fn")
def cond_of_two_structures(t: Setting) -> Any:
    return sg.cond(t.p, lambda: (t.v, t.v), lambda: t.v)  # call


@bad(sg.DTypeError, "cond", "float32", "float64", "true_fn", "false_fn")
def cond_of_two_dtypes(t: Setting) -> Any:
    return sg.cond(t.p, lambda: t.v, lambda: t.d)  # call


@bad(sg.ShapeError, "cond", "[3]", "[4, 3]", "true_fn", "false_fn")
def cond_of_two_shapes(t: Setting) -> Any:
    wider = lambda v: v + t.rows  # body
    return sg.cond(t.p, lambda v: v, wider, t.v)  # call


@bad(sg.ArgumentError, "switch", "structure", "branch 2")
def switch_of_two_structures(t: Setting) -> Any:
    return sg.switch(t.i, [lambda v: v, lambda v: -v, lambda v: {"v": v}], t.v)  # call


@bad(sg.DTypeError, "switch", "branch 1", "float32", "int32")
def switch_of_two_dtypes(t: Setting) -> Any:
    return sg.switch(t.i, [lambda v: v, lambda v: sg.cast(v, sg.int32)], t.v)  # call


@bad(sg.ShapeError, "switch", "branch 1", "[3]", "float32[]")
def switch_of_two_shapes(t: Setting) -> Any:
    return sg.switch(t.i, [lambda v: v, lambda v: sg.reduce_sum(v)], t.v)  # call


# ------------------------------------------------------------------------- conditions and indices


@bad(sg.DTypeError, "cond", "scalar boolean", "float32[]")
def cond_of_a_float(t: Setting) -> Any:
    return sg.cond(t.s, lambda: t.v, lambda: t.v)  # call


@bad(sg.DTypeError, "cond", "scalar boolean", "int32[]")
def cond_of_an_integer(t: Setting) -> Any:
    return sg.cond(t.i, lambda: t.v, lambda: t.v)  # call


@bad(sg.DTypeError, "cond", "scalar boolean", "bool[2]", "sg.reduce_all")
def cond_of_several_booleans(t: Setting) -> Any:
    return sg.cond(t.b, lambda: t.v, lambda: t.v)  # call


@bad(sg.DTypeError, "while_loop", "condition", "scalar boolean", "float32[]")
def while_of_a_float(t: Setting) -> Any:
    return sg.while_loop(lambda s: s, lambda s: s, t.s)  # call


@bad(sg.DTypeError, "while_loop", "condition", "scalar boolean", "bool[3]")
def while_of_several_booleans(t: Setting) -> Any:
    return sg.while_loop(lambda v: v < 3.0, lambda v: v * 2.0, t.v)  # call


@bad(sg.DTypeError, "while_loop", "condition", "scalar boolean")
def while_of_two_conditions(t: Setting) -> Any:
    return sg.while_loop(lambda s: (s < 1.0, s < 2.0), lambda s: s * 2.0, t.s)  # call


@bad(sg.DTypeError, "while_loop", "condition", "scalar boolean", "None")
def while_of_nothing(t: Setting) -> Any:
    return sg.while_loop(lambda s: None, lambda s: s * 2.0, t.s)  # call


@bad(sg.DTypeError, "switch", "scalar integer", "float32[]", "sg.cast")
def switch_by_a_float(t: Setting) -> Any:
    return sg.switch(t.s, [lambda: t.v, lambda: t.v])  # call


@bad(sg.DTypeError, "switch", "scalar integer", "bool[]")
def switch_by_a_boolean(t: Setting) -> Any:
    return sg.switch(t.p, [lambda: t.v, lambda: t.v])  # call


@bad(sg.DTypeError, "switch", "scalar integer", "bool[2]")
def switch_by_several(t: Setting) -> Any:
    return sg.switch(t.b, [lambda: t.v, lambda: t.v])  # call


@bad(sg.DTypeError, "fori_loop", "upper", "scalar integer", "float32[]")
def fori_to_a_float(t: Setting) -> Any:
    return sg.fori_loop(0, t.s, lambda i, a: a, t.v)  # call


# -------------------------------------------------------------------------------- functions, counts


@bad(sg.ArgumentError, "switch", "at least one function")
def switch_without_functions(t: Setting) -> Any:
    return sg.switch(t.i, [], t.v)  # call


@bad(sg.ArgumentError, "cond", "true_fn", "function")
def cond_of_no_function(t: Setting) -> Any:
    return sg.cond(t.p, t.v, lambda: t.v)  # call


@bad(sg.ArgumentError, "scan", "function")
def scan_of_no_function(t: Setting) -> Any:
    return sg.scan(None, t.v, t.rows)  # call


@bad(sg.ArgumentError, "while_loop", "body", "function")
def while_without_a_body(t: Setting) -> Any:
    return sg.while_loop(lambda s: s < 1.0, t.v, t.s)  # call


@bad(sg.ArgumentError, "scan", "pair", "(carry, result)")
def scan_without_a_result(t: Setting) -> Any:
    return sg.scan(lambda c, x: c + x, t.v, t.rows)  # call


@bad(sg.ShapeError, "scan", "first axes", "4", "5")
def scan_of_two_lengths(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c, x), t.v, {"a": t.rows, "b": t.five})  # call


@bad(sg.ShapeError, "scan", "length", "4", "5")
def scan_of_another_length(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c, x), t.v, t.rows, length=5)  # call


@bad(sg.ShapeError, "scan", "first axis", "float32[]")
def scan_over_a_scalar(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c, x), t.v, t.s)  # call


@bad(sg.ArgumentError, "scan", "xs", "length")
def scan_over_nothing(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c, c), t.v)  # call


@bad(sg.ArgumentError, "scan", "length", "negative", "-1")
def scan_of_negative_length(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c, c), t.v, length=-1)  # call


@bad(sg.ArgumentError, "scan", "length", "2.5")
def scan_of_half_a_step(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c, c), t.v, length=2.5)  # call


@bad(sg.ArgumentError, "scan", "unroll")
def scan_unrolled_by_a_word(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c, c), t.v, t.rows, unroll="all")  # call


@bad(sg.ArgumentError, "scan", "unroll", "0")
def scan_unrolled_by_nothing(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c, c), t.v, t.rows, unroll=0)  # call


@bad(sg.ShapeError, "map_fn", "first axes", "4", "5")
def map_of_two_lengths(t: Setting) -> Any:
    return sg.map_fn(lambda x: x[0], (t.rows, t.five))  # call


@bad(sg.ArgumentError, "map_fn")
def map_over_nothing(t: Setting) -> Any:
    return sg.map_fn(lambda x: x, ())  # call


@bad(sg.ArgumentError, "while_loop", "maximum_iterations", "negative", "-3")
def while_of_negative_steps(t: Setting) -> Any:
    return sg.while_loop(lambda s: s < 1.0, lambda s: s, t.s, maximum_iterations=-3)  # call


@bad(sg.ArgumentError, "while_loop", "maximum_iterations", "2.5")
def while_of_half_a_step(t: Setting) -> Any:
    return sg.while_loop(lambda s: s < 1.0, lambda s: s, t.s, maximum_iterations=2.5)  # call


@bad(sg.DTypeError, "scan", "'word'")
def scan_that_returns_a_word(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c, "word"), t.v, t.rows)  # call


@bad(sg.DTypeError, "cond", "'word'")
def cond_on_a_word(t: Setting) -> Any:
    return sg.cond(t.p, lambda x: x, lambda x: x, "word")  # call


@bad(sg.ArgumentError, "checkpoint", "function")
def checkpoint_of_no_function(t: Setting) -> Any:
    return sg.checkpoint(t.v)  # call


# --------------------------------------------------------------------------- errors inside of a body


@bad(sg.ShapeError, "AddV2", "[3]", "[4]")
def an_operation_inside_that_does_not_fit(t: Setting) -> Any:
    def step(c: Any, x: Any) -> Any:
        return c + np.zeros(4, np.float32), x  # body

    return sg.scan(step, t.v, t.rows)


@bad(sg.ShapeError, "MatMul", "3", "5")
def an_operation_inside_two_bodies(t: Setting) -> Any:
    def inner(v: Any) -> Any:
        return sg.matmul(t.rows, t.five)  # body

    return sg.scan(lambda c, x: (sg.cond(t.p, inner, inner, c), x), t.v, t.rows)


@bad(sg.GraphError, "Parameter", "inside", "scan", only_in_a_graph=True)
def a_parameter_made_inside(t: Setting) -> Any:
    def step(c: Any, x: Any) -> Any:
        w = sg.parameter(np.zeros(3, np.float32), name="w")  # body
        return c + w, x

    return sg.scan(step, t.v, t.rows)


@bad(sg.GraphError, "Assign", "inside", "while_loop", only_in_a_graph=True)
def an_assignment_inside(t: Setting) -> Any:
    w = t.graph.output("weights")

    def body(i: Any, v: Any) -> Any:
        new = sg.assign(w, v)  # body
        return i + 1, new

    return sg.while_loop(lambda i, v: i < 3, body, (t.i, t.v))


@bad(sg.GraphError, "Placeholder", "inside", "cond", only_in_a_graph=True)
def a_placeholder_made_inside(t: Setting) -> Any:
    def branch() -> Any:
        return sg.placeholder(sg.float32, [3])  # body

    return sg.cond(t.p, branch, lambda: t.v)


def foreign() -> Any:
    with sg.Graph().as_default():
        return sg.placeholder(sg.float32, [3], name="far_away")


@bad(sg.GraphError, "scan", "far_away", "does not enclose", only_in_a_graph=True)
def a_capture_of_another_graph(t: Setting) -> Any:
    far = foreign()

    def step(c: Any, x: Any) -> Any:
        return c + far, x  # body

    return sg.scan(step, t.v, t.rows)


@bad(sg.GraphError, "while_loop", "far_away", "does not enclose", only_in_a_graph=True)
def a_result_of_another_graph(t: Setting) -> Any:
    far = foreign()
    return sg.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, far), (t.i, t.v))  # call


@bad(sg.GraphError, "two graphs", only_in_a_graph=True)
def operands_of_two_graphs(t: Setting) -> Any:
    return sg.scan(lambda c, x: (c + x, None), foreign(), t.rows)  # call


@bad(sg.GraphError, "two graphs", only_in_a_graph=True)
def a_condition_of_another_graph(t: Setting) -> Any:
    with sg.Graph().as_default():
        far = sg.placeholder(sg.bool, [])
    return sg.cond(far, lambda v: v, lambda v: -v, t.v)  # call


@bad(sg.GraphError, "was made inside the body of scan", "return it", only_in_a_graph=True)
def what_a_body_left_outside(t: Setting) -> Any:
    kept = []

    def step(c: Any, x: Any) -> Any:
        kept.append(c * 2.0)
        return c, None

    sg.scan(step, t.v, t.rows)
    t.settled()
    return t.v + kept[0]  # call


# ---------------------------------------------------------------------------------------- gradients


@bad(sg.GradientError, "while_loop", "maximum_iterations", "sg.scan", only_in_a_graph=True)
def the_gradient_of_an_unbounded_loop(t: Setting) -> Any:
    r = sg.while_loop(lambda s: s < 100.0, lambda s: s * 2.0, t.s)  # body
    t.settled()
    return sg.gradients(r, t.s)  # call


@bad(sg.GradientError, "while_loop", "maximum_iterations", only_in_a_graph=True)
def the_gradient_of_an_unbounded_loop_in_a_scan(t: Setting) -> Any:
    def step(c: Any, x: Any) -> Any:
        return sg.while_loop(lambda s: s < 100.0, lambda s: s * 2.0, c), None  # body

    end, _ = sg.scan(step, t.s, length=3)
    t.settled()
    return sg.gradients(end, t.s)  # call


@bad(sg.GradientError, "not like that", only_in_a_graph=True)
def a_gradient_that_is_prevented_inside(t: Setting) -> Any:
    def step(c: Any, x: Any) -> Any:
        return sg.prevent_gradient(c * 2.0, "not like that"), None  # body

    end, _ = sg.scan(step, t.s, length=3)
    t.settled()
    return sg.gradients(end, t.s)  # call


# -------------------------------------------------------------------------------------------- tests

DTYPES = {"float32": sg.float32, "float64": sg.float64, "int32": sg.int32, "bool": sg.bool}


def in_a_graph() -> Setting:
    graph = sg.Graph()
    with graph.as_default():
        sg.parameter(np.ones(3, np.float32), name="weights")
        made = {
            name: sg.placeholder(DTYPES[str(value.dtype)], list(np.shape(value)), name=name)
            for name, value in VALUES.items()
        }
    return Setting(**made, graph=graph)


def without_source(place: re.Match[str]) -> str:
    """What follows the user's own text, which does not count as part of the message."""
    file, line, rest = place.groups()
    source = linecache.getline(file, int(line))
    return rest[max(n for n in range(len(rest) + 1) if rest[:n] in source) :]


def check(bad: Bad, error: BaseException) -> None:
    shown = str(error)
    lines = marked(bad.case, "call") + marked(bad.case, "body")
    assert lines, "the case marks no line"
    words = re.sub(r"at (\S+):(\d+): (.*)", without_source, shown)
    missing = [word for word in bad.words if word not in words] + [
        line for line in lines if line not in shown
    ]
    assert not missing, f"{missing} are not in:\n{shown}"


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_is_refused_in_a_graph(bad: Bad) -> None:
    setting = in_a_graph()
    graph = setting.graph
    with graph.as_default():
        setting.settled()
        with pytest.raises(bad.error) as caught:
            bad.case(setting)
        assert graph.to_text() == setting.text
        assert sg.constant(1.0).op.graph is graph
        with sg.name_scope("gradients"):  # The scope of a failed generation is free again.
            assert sg.constant(2.0, name="free").name == "gradients/free:0"
    check(bad, caught.value)


@pytest.mark.parametrize("bad", [bad for bad in BAD if not bad.only_in_a_graph], ids=lambda bad: bad.name)
def test_is_refused_at_once(bad: Bad) -> None:
    with pytest.raises(bad.error) as caught:
        bad.case(Setting(**VALUES))
    check(bad, caught.value)
    assert sg.exp(np.float32(0.0)) == 1.0  # Outside of any graph, as before.


@pytest.mark.parametrize("bad", [bad for bad in BAD if not bad.only_in_a_graph], ids=lambda bad: bad.name)
def test_is_refused_while_a_function_is_traced(bad: Bad) -> None:
    def f(**values: Any) -> Any:
        return bad.case(Setting(**values))

    with pytest.raises(bad.error) as caught:
        sg.function(f, engine="numpy")(**VALUES)
    check(bad, caught.value)


class OwnError(Exception):
    pass


def raises(*_: Any) -> Any:
    raise OwnError


CONSTRUCTS: dict[str, Case] = {
    "scan": lambda t: sg.scan(raises, t.v, t.rows),
    "while_loop": lambda t: sg.while_loop(lambda s: s < 1.0, raises, t.s),
    "condition of while_loop": lambda t: sg.while_loop(raises, lambda s: s * 2.0, t.s),
    "cond": lambda t: sg.cond(t.p, lambda: t.v, raises),
    "switch": lambda t: sg.switch(t.i, [raises]),
    "fori_loop": lambda t: sg.fori_loop(0, 3, raises, t.v),
    "map_fn": lambda t: sg.map_fn(raises, t.rows),
    "checkpoint": lambda t: sg.checkpoint(raises)(t.v),
    "two": lambda t: sg.scan(lambda c, x: (sg.cond(t.p, raises, raises), x), t.v, t.rows),
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_users_own_error_passes_and_nothing_stays_behind(name: str) -> None:
    setting = in_a_graph()
    with setting.graph.as_default():
        setting.settled()
        with pytest.raises(OwnError):
            CONSTRUCTS[name](setting)
        assert setting.graph.to_text() == setting.text
        assert sg.constant(1.0).op.graph is setting.graph
    with pytest.raises(OwnError):
        CONSTRUCTS[name](Setting(**VALUES))
    assert sg.exp(np.float32(0.0)) == 1.0


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_function_of_too_few_arguments_is_pythons_own_error(count: int) -> None:
    f = [lambda: None, lambda c: c, lambda c, x, y: c][(0, 1, 3).index(count)]
    with pytest.raises(TypeError, match="positional argument"):
        sg.scan(f, VALUES["v"], VALUES["rows"])


# ------------------------------------------------------------------------ what looks odd but must work


@pytest.mark.parametrize(("index", "branch"), [(-5, 0), (0, 0), (1, 1), (2, 2), (99, 2), (-(2**31), 0)])
def test_an_index_out_of_range_takes_the_nearest(run: Callable[..., Any], index: int, branch: int) -> None:
    branches = [lambda x: x * 2.0, lambda x: x * 3.0, lambda x: x * 5.0]
    graph = sg.Graph()
    with graph.as_default():
        i, x = sg.placeholder(sg.int32, []), sg.placeholder(sg.float32, [])
        y = sg.switch(i, branches, x)
        (dx,) = sg.gradients(y, x)
    assert run([y, dx], {i: index, x: 7.0}) == [7.0 * (2, 3, 5)[branch], (2, 3, 5)[branch]]
    assert sg.switch(index, branches, 7.0) == 7.0 * (2, 3, 5)[branch]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_an_index_of_any_integer_dtype(dtype: Any) -> None:
    branches = [lambda x: x, lambda x: -x]
    assert sg.switch(np.array(1, dtype), branches, 7.0) == -7.0
    with sg.Graph().as_default() as graph:
        i = sg.constant(np.array(np.iinfo(dtype).max, dtype))
        y = sg.switch(i, branches, sg.constant(7.0))
    with sg.Session(graph, engine="numpy") as session:
        assert session.run(y) == -7.0


def test_a_loop_without_end_is_bounded(run: Callable[..., Any], graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, [])
    count, y = sg.while_loop(
        lambda i, v: sg.constant(True), lambda i, v: (i + 1, v * x), (0, 1.0), maximum_iterations=7
    )
    assert run([count, y, *sg.gradients(y, x)], {x: 2.0}) == [7, 128.0, 7 * 64.0]


def test_a_loop_of_no_steps(run: Callable[..., Any], graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, [])
    y = sg.while_loop(lambda v: v < 10.0, lambda v: v * v, x, maximum_iterations=0)
    assert run([y, *sg.gradients(y, x)], {x: 3.0}) == [3.0, 1.0]


def test_a_scan_over_nothing(run: Callable[..., Any], graph: sg.Graph) -> None:
    x, xs = sg.placeholder(sg.float32, []), sg.placeholder(sg.float32, [0, 2])
    end, ys = sg.scan(lambda c, row: (c * sg.reduce_sum(row), row * c), x, xs)
    dx, dxs = sg.gradients(end, [x, xs])
    assert dxs is None
    values = run([end, ys, dx], {x: 3.0, xs: np.zeros((0, 2), np.float32)})
    assert [v.shape for v in values] == [(), (0, 2), ()]
    assert values[0] == 3.0
    assert values[2] == 1.0


def test_a_scan_of_a_size_known_when_it_runs(run: Callable[..., Any], graph: sg.Graph) -> None:
    x, xs = sg.placeholder(sg.float32, []), sg.placeholder(sg.float32, ["n"])
    end, ys = sg.scan(lambda c, v: (c * v, c + v), x, xs)
    found = sg.gradients([end, sg.reduce_sum(ys)], [x, xs])
    for n in (0, 1, 4):
        given = np.arange(1.0, n + 1, dtype=np.float32)
        value, many, dx, dxs = run([end, ys, *found], {x: 2.0, xs: given})
        products = np.cumprod(np.concatenate([[1.0], given]))
        assert value == 2.0 * products[-1]
        np.testing.assert_allclose(many, 2.0 * products[:-1] + given)
        np.testing.assert_allclose(dx, products.sum())
        assert dxs.shape == (n,)


def test_carries_with_nothing_in_them(run: Callable[..., Any], graph: sg.Graph) -> None:
    xs = sg.placeholder(sg.float32, [3])
    nothing, ys = sg.scan(lambda c, x: ((), {"y": x * x}), (), xs)
    assert nothing == ()
    end, none = sg.scan(lambda c, x: (c + x, None), sg.constant(0.0), xs)
    assert none is None
    given = {xs: [1.0, 2.0, 3.0]}
    assert run(ys, given)["y"].tolist() == [1.0, 4.0, 9.0]
    assert run(sg.gradients([end, ys["y"]], xs), given)[0].tolist() == [3.0, 5.0, 7.0]


def test_branches_that_return_what_they_were_given(run: Callable[..., Any], graph: sg.Graph) -> None:
    p, x, y = sg.placeholder(sg.bool, []), sg.placeholder(sg.float32, []), sg.placeholder(sg.float32, [])
    first, second = sg.cond(p, lambda a, b: (a, b), lambda a, b: (b, a), x, y)
    found = sg.gradients(first * 3.0 + second, [x, y])
    assert run([first, second, *found], {p: True, x: 1.0, y: 2.0}) == [1.0, 2.0, 3.0, 1.0]
    assert run([first, second, *found], {p: False, x: 1.0, y: 2.0}) == [2.0, 1.0, 1.0, 3.0]


def test_a_branch_that_is_not_taken_may_fail_to_be_finite(run: Callable[..., Any], graph: sg.Graph) -> None:
    """The reason for cond where ``where`` would put NaN into the gradient."""
    x = sg.placeholder(sg.float64, [])
    y = sg.cond(x > 0.0, lambda: sg.log(x), lambda: x)
    assert run([y, *sg.gradients(y, x)], {x: -1.0}) == [-1.0, 1.0]
    assert run([y, *sg.gradients(y, x)], {x: 1.0}) == [0.0, 1.0]


def test_a_failure_in_a_body_is_not_its_own_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no memory left")

    monkeypatch.setattr(sg.ops.Tan, "numpy", staticmethod(fails), raising=False)
    with pytest.raises(sg.EngineError, match=r"Tan 'Tan'.*no memory left") as caught:
        sg.function(lambda x: sg.scan(lambda c, _: (sg.tan(c), None), x, length=2)[0], engine="numpy")(1.0)
    seen: list[BaseException] = []
    error: BaseException | None = caught.value
    while error is not None:
        assert error not in seen
        seen.append(error)
        error = error.__cause__
    assert isinstance(seen[-1], ValueError)
