"""Programs in TensorFlow, what their text uses, and what TensorFlow does with gradients.

Outside of functions of TensorFlow's a program runs eagerly: branches are chosen, and loops end, as its text
says, whatever the numbers are. Inside, graphs hold every branch and any number of rounds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from programs.drawing import DEEPEST, Drawing, UnfitError
from programs.language import Function, Program, Statement, Writer, Written
from programs.reach import BLIND, STOPPED, Closure, End, Model, Scope, Tensor, Ways, read_by
from programs.tensorflow_forms import TENSORFLOW

__all__ = [
    "called",
    "decided",
    "functools",
    "given_back",
    "going",
    "index_of",
    "keras",
    "loop_of",
    "np",
    "own_forget",
    "own_scale",
    "slope",
    "tf",
]

BEFORE, AFTER = "before", "after"
"""The names of blocks that stand before and after the tape."""
MODULES = ("net", "seq", "fun", "frozen", "unwatched", "table", "rows", "norm", "store", "own_linear", "held")
HELD = ("held.variable",)
"""Variables that are not trainable; Keras' own word for it, of a layer, does not keep tapes from them."""
PARAMETERS = (
    "net.kernel",
    "net.bias",
    "seq.first.kernel",
    "seq.second.kernel",
    "seq.second.bias",
    "frozen.kernel",
    "frozen.bias",
    *HELD,
    "un.watched",
    "table.embeddings",
    "rows.variable",
    "norm.gamma",
    "norm.beta",
    "own.weight",
)


def arguments(seed: int) -> dict[str, Any]:
    """The arguments of a program, new ones with the same values at every call."""
    rng = np.random.default_rng(seed)
    drawn = lambda *sizes: tf.constant(rng.normal(size=sizes), tf.float32)
    f0, f1, f2 = tf.Variable(drawn(3), name="f0"), drawn(3), tf.Variable(drawn(3), name="f2")
    i0 = tf.constant(rng.integers(-1, 4, 3), tf.int32)
    given = {"f0": f0, "f1": f1, "f2": f2, "i0": i0, "b0": tf.constant(rng.random(3) < 0.5)}
    keras.utils.set_random_seed(seed)
    net, frozen = keras.layers.Dense(3), keras.layers.Dense(3, trainable=False)
    seq = keras.Sequential([keras.layers.Dense(3, use_bias=False), keras.layers.Dense(3, "tanh")])
    table, norm = keras.layers.Embedding(3, 3), keras.layers.LayerNormalization()
    for layer in (net, frozen, seq, norm):
        layer.build((None, 3))
    table.build()
    x = keras.Input((3,))
    fun = keras.Model(x, net(x) + keras.ops.stop_gradient(x))
    rows, store = tf.Variable(drawn(3, 3), name="rows"), tf.Variable(tf.zeros(3), trainable=False)
    weight = tf.Variable(drawn(3), name="weight")

    @tf.custom_gradient
    def own_linear(x: Any) -> Any:
        def grad(h: Any, variables: Any = None) -> Any:
            return h * 2.0, [h * 3.0 for _ in variables]

        return x * weight, grad

    own_linear.weight = weight
    held = tf.Variable(drawn(3), trainable=False, name="held")
    modules = (net, seq, fun, frozen, drawn(3), table, rows, norm, store, own_linear, held)
    return given | dict(zip(MODULES, modules, strict=True))


def sources_of(given: dict[str, Any]) -> dict[str, Any]:
    """What is asked about."""
    net, seq, frozen, norm = given["net"], given["seq"], given["frozen"], given["norm"]
    first, second = seq.layers
    plain = lambda one: getattr(one, "_value", one)
    weights = (net.kernel, net.bias, first.kernel, second.kernel, second.bias)
    found = [plain(one) for one in weights]
    found += [plain(frozen.kernel), plain(frozen.bias), given["held"], given["unwatched"]]
    found += [plain(given["table"].embeddings), given["rows"], plain(norm.gamma), plain(norm.beta)]
    found.append(given["own_linear"].weight)
    inputs = {name: given[name] for name in ("f0", "f1", "f2")}
    return inputs | dict(zip(PARAMETERS, found, strict=True))


# ------------------------------------------------------------------------ what the text of programs uses


def decided(condition: Any, choice: int) -> Any:
    """Eagerly the choice; in a graph what the condition says."""
    return tf.constant(choice == 0) if tf.executing_eagerly() else tf.reduce_any(condition)


def index_of(number: Any, choice: int) -> Any:
    return tf.constant(choice) if tf.executing_eagerly() else tf.reduce_max(number)


def going(n: Any, most: int, condition: Callable[..., Any], state: Sequence[Any]) -> Any:
    """Whether a loop goes on; its condition has a say in graphs only."""
    return n < most if tf.executing_eagerly() else (n < most) & tf.reduce_any(condition(*state)[0])


def loop_of(f: Callable[..., Any], count: int, state: Any) -> Any:
    for _ in range(count):
        state = f(*state)
    return state


def slope(f: Callable[[Any], Any], x: Any) -> Any:
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as inner:
        inner.watch(x)
        y = f(x)
    return inner.gradient(y, x)


@tf.custom_gradient
def own_scale(x: Any, y: Any) -> Any:
    x, y = tf.convert_to_tensor(x), tf.convert_to_tensor(y)
    return x * y, lambda h: (h * y, h * x)


CALLED: list[int] = []
"""How many functions with a gradient of their own ran eagerly, and how many of the gradients were called."""


def called(label: str) -> None:
    """A function with a gradient of its own runs: note it unless it is part of a graph."""
    if tf.executing_eagerly():
        CALLED[0] += 1


def given_back(gradients: Any, variables: Any) -> Any:
    """What the gradient of a program's own function returns."""
    if tf.executing_eagerly():
        CALLED[1] += 1
    return gradients if variables is None else (gradients, [None] * len(variables))


@tf.custom_gradient
def own_forget(x: Any, y: Any) -> Any:
    called("own_forget")
    x, y = tf.convert_to_tensor(x), tf.convert_to_tensor(y)
    return x * y, lambda h: given_back((h * y, None), None)


# ---------------------------------------------------------------------------------------------------- writing


def choice_of(statement: Statement) -> int:
    """Which of its functions a statement calls eagerly."""
    return int("".join(filter(str.isdigit, statement.label))) % max(1, len(statement.functions))


def steps_of(statement: Statement) -> int:
    """How many rounds a ``while`` takes eagerly."""
    return 3 if statement.number is None else statement.number


class Tensorflow(Writer):
    """Writes programs in TensorFlow."""

    module, library, forms = "programs.tensorflows", "tensorflow", TENSORFLOW
    inputs = ("f0", "f1", "f2", "i0", "b0", *MODULES)
    constructs = {
        "call": "{f0}({args})",
        "jit": "tf.function({f0}, autograph=False)({args})",
        "auto": "tf.function({f0})({args})",
        "cond": "tf.cond(decided({first}, {number}), lambda: {f0}({rest}), lambda: {f1}({rest}))",
        "switch": "tf.switch_case(index_of({first}, {number}), "
        "[functools.partial(f, {rest}) for f in [{functions}]])",
        "while": "tf.while_loop(lambda n, *c: going(n, {number}, {f0}, c), "
        "lambda n, *c: (n + 1, *{f1}(*c)), (tf.constant(0), {args}))[1:]",
        "fori": "loop_of({f0}, {number}, ({args}))",
        "map": "tuple(tf.reduce_sum(t, 0) for t in tf.map_fn("
        "lambda r: {f0}(r), tf.stack([{args}]), fn_output_signature=(tf.float32,) * {total}))",
        "custom": "{f0}_own({args})",
        "branch": "tf.function({f0}_branch)({args})",
        "rounds": "tf.function({f0}_rounds)({args})",
    }

    def written(self) -> Written:
        """The program; a block before the tape and one after it stand outside of its ``with``."""
        self.line(f"from {self.module} import *")
        self.line(f"def program({', '.join(self.inputs)}):")
        self._indent += 1
        statements, results = list(self.program.statements), list(self.program.results)
        if not (statements and self._is_outside(statements[0], BEFORE)):
            self._open()
        for statement in statements:
            if self._is_outside(statement, AFTER):
                outside = {name for inner in statement.inside for name in inner.makes}
                for k, name in enumerate(results):
                    if name not in outside:
                        results[k] = f"{name}_too"
                        self.line(f"{name}_too = {name} * 1.0")
                self._indent -= 1
            self.statement(statement)
            if self._is_outside(statement, BEFORE):
                self._open()
        if not (statements and self._is_outside(statements[-1], AFTER)):
            results = [f"{name} * 1.0" for name in results]
            self.line(f"results = ({', '.join(results)},)")
            self._indent -= 1
            results = ["*results"]
        self.line(f"return tape, ({', '.join(results)},)")
        return Written("\n".join(self._lines) + "\n", self._where)

    def _open(self) -> None:
        self._where["tape"] = len(self._lines) + 1
        self.line("with tf.GradientTape(persistent=True) as tape:")
        self._indent += 1
        self.line("tape.watch(f1)")

    def _is_outside(self, statement: Statement, where: str) -> bool:
        return statement.names == (where,) and statement.label != self.opened

    def put(self, statement: Statement) -> str:
        if statement.form in ("cond", "switch"):
            statement = replace(statement, number=choice_of(statement))
        elif statement.form == "while":
            statement = replace(statement, number=steps_of(statement))
        return super().put(statement)

    def block(self, statement: Statement) -> None:
        if statement.names in ((BEFORE,), (AFTER,)):
            for inner in statement.inside:
                self.statement(inner)
        else:
            super().block(statement)

    def opening(self, statement: Statement) -> str:
        return "if True:" if statement.label == self.opened else "with tape.stop_recording():"

    def function(self, statement: Statement, function: Function) -> None:
        super().function(statement, function)
        name, takes = function.name, ", ".join(function.takes)
        last = function is statement.functions[-1]
        if statement.form == "custom":
            sums = " + ".join([f"{r + 2.0} * h[{r}]" for r in range(len(function.gives))])
            parts = ", ".join(["None" if some is None else sums for some in statement.passes])
            self.line(
                f"@tf.custom_gradient\n"
                f"def {name}_own({takes}):\n"
                f"    called({name!r})\n"
                f"    def grad(*h, variables=None):\n"
                f"        return given_back(({parts},), variables)\n"
                f"    return {name}({takes}), grad"
            )
        elif statement.form == "branch" and last:
            first, other = [one.name for one in statement.functions]
            self.line(
                f"def {first}_branch(choice, {takes}):\n"
                f"    if tf.reduce_any(choice):\n"
                f"        made = {first}({takes})\n"
                f"    else:\n"
                f"        made = {other}({takes})\n"
                f"    return made"
            )
        elif statement.form == "rounds":
            self.line(
                f"def {name}_rounds({takes}):\n"
                f"    for _ in tf.range({statement.number}):\n"
                f"        {takes}, = {name}({takes})\n"
                f"    return {takes},"
            )


# ---------------------------------------------------------------------------------------------------- drawing

CONSTRUCTS = {
    "define": 2.0,
    "block": 2.0,
    "cond": 2.0,
    "switch": 1.0,
    "while": 2.0,
    "fori": 1.0,
    "map": 1.0,
    "jit": 4.0,
    "auto": 0.7,
    "branch": 0.7,
    "rounds": 0.7,
    "custom": 2.5,
}


class TensorflowDrawing(Drawing):
    """A program of TensorFlow's in the making."""

    def _block(self) -> Statement:
        """Recording is stopped outside of functions, and for operations alone."""
        if self.depth:
            raise UnfitError
        self.depth, kinds = DEEPEST, self.kinds
        self.kinds = [name for name in kinds if name not in ELSEWHERE]
        try:
            return super()._block()
        finally:
            self.depth, self.kinds = 0, kinds

    def _auto(self) -> Statement:
        return replace(self._checkpoint(), form="auto")

    def _branch(self) -> Statement:
        return replace(self._cond(), form="branch")

    def _rounds(self) -> Statement:
        return replace(self._fori(), form="rounds")

    def _custom(self) -> Statement:
        """For an argument there is a gradient or not, whichever result is differentiated."""
        kinds = self.kinds
        self.kinds = [name for name in kinds if name not in CLOSED]
        try:
            drawn = super()._custom()
        finally:
            self.kinds = kinds
        results = tuple(range(len(drawn.makes)))
        return replace(drawn, passes=tuple([None if some is None else results for some in drawn.passes]))


CLOSED = ("biased", "held")
"""The statements with tensors, and variables that are not trainable, which tapes do not see in there."""
ELSEWHERE = ("slope", "slope_with_stop", "own_scale", "own_forget", "own_linear")
"""The statements whose results are made in lines that are not theirs."""


def tensorflow_program(seed: int, attempt: int = 0) -> Program:
    """A program, some of whose statements may stand before the tape or after it."""
    drawing = TensorflowDrawing(1000 * seed + attempt, TENSORFLOW, CONSTRUCTS, alone=1.0)
    program = drawing.program()
    statements, r = list(program.statements), drawing.random
    if r.random() < 0.25:
        statements = _apart(statements, BEFORE)
    if r.random() < 0.2:
        statements = _apart(statements[::-1], AFTER)[::-1]
    return replace(program, statements=tuple(statements))


def _apart(statements: list[Statement], where: str) -> list[Statement]:
    """The first statements, as far as they are plain ones, in a block."""
    left_out = ELSEWHERE if where == BEFORE else (*ELSEWHERE, *LAST)  # Without a stop it is of no use there.
    plain = [s.form in TENSORFLOW and s.form not in left_out for s in statements]
    count = plain.index(False) if False in plain else len(plain)
    count = min(count, 3, len(statements) - 1)
    if count < 1:
        return statements
    inside = statements[:count] if where == BEFORE else statements[:count][::-1]
    return [Statement("block", inside=tuple(inside), names=(where,)), *statements[count:]]


# ------------------------------------------------------------------------------------------------------ model


class TensorflowModel(Model):
    """What TensorFlow does with gradients.

    Attributes:
        graphs: how many functions of TensorFlow's this is inside of, but for those of :attr:`_outer`.
    """

    inputs = ("f0", "f1", "f2", *PARAMETERS)

    def __init__(self, program: Program, forms: Any, removed: End | None = None) -> None:
        super().__init__(program, forms, removed)
        self.graphs = 0

    @property
    def in_graph(self) -> bool:
        outer = getattr(self, "_outer", None)
        return bool(self.graphs or (outer is not None and outer.in_graph))

    @contextmanager
    def graph(self) -> Iterator[None]:
        self.graphs += 1
        yield
        self.graphs -= 1

    def ways(self) -> Ways:
        scope: Scope = {name: self._source(name) for name in self.inputs}
        scope |= {name: Tensor(False, frozenset()) for name in ("i0", "b0")}
        self.run(self.program.statements, scope)
        self.results = [self.seen(scope[name]) for name in self.program.results]
        return frozenset().union(*[x.ways for x in self.results])

    def _source(self, name: str) -> Tensor:
        found = super()._source(name)
        if name in HELD:
            return replace(found, ways=self.behind(found.ways, End("None", STOPPED, why=name)))
        if name == "un.watched":
            return replace(found, ways=self.behind(found.ways, End("tape", STOPPED)))
        return found

    def _made(self, statement: Statement, scope: Scope) -> list[Tensor]:
        """Tapes never record a stop, so that in a block it is what it takes that has no record."""
        left = statement.form == "numpy" and not self.in_graph  # What comes back from Python is new.
        if left or (self.here and statement.form in ASSIGNS):  # So is what is assigned while nothing records.
            return [Tensor(True, frozenset(), frozenset(), self.here)]
        made = super()._made(statement, scope)
        if not self.here or statement.form not in self.forms:
            return made
        form = self.forms[statement.form]
        found = []
        for name, y, ways in zip(statement.makes, made, form.ways, strict=True):
            if name[0] == "f" and {way[:1] for way in ways} <= {"s", "."} and statement.form in LAST:
                end = End(statement.label, STOPPED)
                behind: Ways = frozenset()
                for way, taken in zip(ways, statement.takes, strict=True):
                    if way == ".":
                        continue
                    x = self.seen(scope[taken])
                    inner = self.through(way[1:], x, True, statement.label) if way[1:] else x.ways
                    block = self.here if way[1:] else x.block  # What is between two stops is made here.
                    inner = self.left(replace(x, ways=inner, block=block), ()).ways
                    behind |= self.behind(inner, end)
                y = replace(y, ways=behind, block=())
            found.append(y)
        return found

    # -------------------------------------------------------------------------------------- constructs

    def _cond(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """Eagerly one function runs; in a graph it may be any. What decides is no part of the result."""
        given = taken[1:]
        if not self.in_graph:
            return self.call(Closure(statement.functions[choice_of(statement)], scope), given)
        made = [self.inside(f, scope, given) for f in statement.functions]
        return [self.fresh(*some) for some in zip(*made, strict=True)]

    _switch = _cond

    def _branch(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        with self.graph():
            return self._cond(statement, scope, taken)

    def _jit(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        with self.graph():
            return list(map(self.fresh, self.inside(statement.functions[0], scope, taken)))

    _auto = _jit

    def _while(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        body = statement.functions[-1]
        if not self.in_graph:
            return self._repeated(body, steps_of(statement), scope, taken)
        state = taken
        while True:
            made = self.inside(body, scope, state)
            new = [self.fresh(x, y) for x, y in zip(state, made, strict=True)]
            if [x.ways for x in new] == [x.ways for x in state]:
                return new
            state = new

    def _repeated(self, body: Function, steps: int, scope: Scope, state: list[Tensor]) -> list[Tensor]:
        for _ in range(steps):
            state = self.call(Closure(body, scope), state)
        return state

    def _fori(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        return self._repeated(statement.functions[0], statement.number or 0, scope, taken)

    def _rounds(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        with self.graph():
            return self._while(statement, scope, taken)

    def _custom(self, statement: Statement, scope: Scope, taken: list[Tensor]) -> list[Tensor]:
        """Arguments have the gradients that it returns; what it closes over has none."""
        reader, results = read_by(self, statement.functions[0], scope, taken)
        arguments = dict(zip(reader.marks, statement.passes, strict=False))
        end = End(statement.label, BLIND)
        variables = [scope[name] for name in self.inputs if name not in ("f1", "un.watched", *HELD)]
        named = [
            one.ways for one in variables if isinstance(one, Tensor)
        ]  # TensorFlow asks for each it reads.
        made = []
        for name, y in zip(statement.makes, results, strict=True):
            read = {way.source for way in y.ways}
            ways: set[Any] = set()
            for mark, x in reader.marks.items():
                if arguments.get(mark) is not None:
                    ways |= x.ways
                elif mark in arguments or mark in read or x.ways in named:
                    ways |= self.behind(x.ways, end) if x.smooth else x.ways
            made.append(Tensor(name[0] == "f", frozenset(ways), frozenset(), self.here))
        return made


ASSIGNS = ("assigned", "assign_added")
LAST = ("stop", "stop_both", "stop_twice", "stop_in_keras")
"""The statements whose last operation is a stop."""
