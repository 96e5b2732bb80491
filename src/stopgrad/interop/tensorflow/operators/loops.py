"""Loops of functions: scans of a known number of steps, or loops with a condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.types import tensor_type
from stopgrad.graph.builder import default_graph
from stopgrad.interop.shared.conversions import Refused
from stopgrad.interop.tensorflow.operators.calling import Call, Function, Known
from stopgrad.interop.tensorflow.operators.lists import TensorList
from stopgrad.interop.tensorflow.operators.trips import Trips, trips_of, unchanged
from stopgrad.transforms.control.body_tracing import trace_function

UNROLLED = 1024
"""The most steps of a loop that are unrolled."""
_ERRORS = (Refused, sg.ShapeError, sg.DTypeError, sg.ArgumentError, sg.GraphError)


class Loop:
    """Builds a ``While``.

    States that the body returns as they are, such as handles and limits, are no states: the body sees
    them as they are known here. Lists are tensors that are carried; or, if each step sets the element of its
    own number and reads none, the rows that a scan stacks.

    Attributes:
        states: the first values of the states.
        fixed: the positions of those that do not change.
        trips: how often the loop runs.
        rows: the positions of lists that become rows of a scan.
    """

    node: Call
    condition: Function
    body: Function
    states: list[Any]
    fixed: set[int]

    def __init__(self, node: Call, condition: Function, body: Function, states: Sequence[Any]) -> None:
        self.node, self.condition, self.body = node, condition, body
        self.states = list(states)
        inner = node.library.body(body.name)
        self.fixed = unchanged(inner)
        if len(inner.outputs) != len(states):
            node.fail(f"its body returns {len(inner.outputs)} states, not {len(states)}")
        condition_body = node.library.body(condition.name)
        self.trips: Trips = trips_of(
            condition_body, inner, self.states, self._value_in_condition, node.library
        )
        self.rows: set[int] = set()
        self._lists: dict[int, TensorList] = {}
        self._draws = False

    def _value_in_condition(self, source: tuple[str, int]) -> Any:
        """The value of a result of the condition, if the steps do not change it."""
        args = [x if k in self.fixed else None for k, x in enumerate(self.states)]
        with self.node.trying():
            try:
                return self.node.call_known(self.condition, args, [source])[0]
            except _ERRORS:
                return None

    # --------------------------------------------------------------------------------------------- ways

    def built(self) -> tuple[Any, ...]:
        """The states after the last step."""
        ways: list[Callable[[], tuple[Any, ...]]] = []
        if self.trips.exact:
            ways.append(self._scanned)
        else:
            ways.append(self._guarded if isinstance(self.trips.count, sg.Dim) else self._repeated)
        if self.trips.count is None or (isinstance(self.trips.count, int) and self.trips.count <= UNROLLED):
            ways.append(self._unrolled)
        failed: list[str] = []
        for way in ways:
            with self.node.trying():
                try:
                    return way()
                except _ERRORS as error:
                    failed.append(getattr(error, "message", None) or str(error))
        self.node.fail(failed[0] if len(set(failed)) == 1 else "; or ".join(failed))

    @property
    def _carried(self) -> list[int]:
        """The positions of the states that are carried from step to step."""
        not_carried = self.fixed | self.rows | (set(self.trips.counters) if self.trips.exact else set())
        return [k for k in range(len(self.states)) if k not in not_carried]

    def _first(self) -> list[Any]:
        """The first values of the states that are carried, as tensors."""
        return [self._lists[k].rows() if k in self._lists else self._tensor(k) for k in self._carried]

    def _tensor(self, k: int) -> Any:
        x = self.states[k]
        if not isinstance(x, (sg.Output, Known)):
            raise Refused(f"its state {k} is no tensor, and changes from step to step")
        return self.node.tensor(x)

    # -------------------------------------------------------------------------------------------- bodies

    def _arguments(self, carry: Sequence[Any], step: Any) -> list[Any]:
        """What the functions are given: the carry, and the rest as it is."""
        arguments = list(self.states)
        for k, x in zip(self._carried, carry, strict=True):
            arguments[k] = TensorList(self.states[k].length, None, None, x) if k in self._lists else x
        for k in self.rows:
            arguments[k] = TensorList(self.trips.count, self._lists[k].shape, self._lists[k].dtype)
        if self.trips.exact:
            for k, counter in self.trips.counters.items():
                if k not in self.fixed:
                    arguments[k] = self._counted(counter, step, self.states[k].dtype)
        return arguments

    def _counted(self, counter: Any, step: Any, dtype: Any) -> Any:
        i = sg.cast(step, dtype)
        if counter.step != 1:
            i = sg.multiply(i, sg.constant(counter.step, dtype))
        return i if counter.start == 0 else sg.add(i, sg.constant(counter.start, dtype))

    def _run(self, carry: Sequence[Any], step: Any) -> tuple[list[Any], list[Any]]:
        """One step: the arguments of the body, and what it returns."""
        args = self._arguments(carry, step)
        with self.node.inside(step):
            return args, self.node.call_known(self.body, args)

    def _next(self, carry: Sequence[Any], step: Any) -> tuple[list[Any], list[Any]]:
        """One step: the next carry, and the rows that it sets."""
        _, returned = self._run(carry, step)
        carried = [
            returned[k].rows() if k in self._lists else self.node.tensor(returned[k]) for k in self._carried
        ]
        return carried, [returned[k].item for k in sorted(self.rows)]

    def _holds(self, carry: Sequence[Any], step: Any) -> Any:
        """Whether there is a step for this carry."""
        with self.node.inside():
            (truth,) = self.node.call_known(self.condition, self._arguments(carry, step))
        return sg.reshape(self.node.tensor(truth), [])

    def _settle(self) -> None:
        """Find out, by a step that is forgotten, what the lists hold, and whether the body draws."""
        lists = {k: x for k, x in enumerate(self.states) if isinstance(x, TensorList) and k not in self.fixed}
        self.rows = {k for k, x in lists.items() if x.is_empty or self.trips.exact}
        self._lists = dict(lists)
        types = [x.type for x in self._first()]
        trial_values: list[Any] = []

        def trial(step: sg.Output, *carry: sg.Output) -> list[Any]:
            trial_values.extend([step, *self._run(carry, step)])
            return []

        before = self.node.key_count()
        trace_function(trial, [tensor_type(sg.int32, ()), *types], tuple, "a loop", default_graph())
        self._draws = self.node.key_count() != before
        _, args, returned = trial_values
        for k in sorted(self.rows):
            self._settle_list(k, args, returned[k])

    def _settle_list(self, k: int, args: Sequence[Any], returned: Any) -> None:
        """Decide whether a list becomes rows of a scan; if not, what its elements are."""
        if not isinstance(returned, TensorList):
            raise Refused(f"its state {k} is a list only in the beginning")
        counter = next((i for i, x in enumerate(args) if x is returned.index and x is not None), None)
        count = self.trips.counters.get(counter) if counter is not None else None
        direct = returned.base is args[k] and not args[k].was_read and count is not None
        grows = returned.grows and self.states[k].is_empty
        whole = self.trips.exact and (grows or _same(returned.length, self.trips.count))
        if direct and whole and count is not None and (count.start, count.step) == (0, 1):
            self._lists[k] = returned
            return
        self.rows.discard(k)
        if self.states[k].is_empty:
            if not returned.is_settled or _depends(returned.shape):
                raise Refused(f"nothing tells the shape of the elements of the list that is its state {k}")
            self._lists[k] = TensorList(self.states[k].length, returned.shape, returned.dtype)

    # --------------------------------------------------------------------------------------------- scans

    def _steps(self) -> Any:
        return sg.range(0, self.trips.count, dtype=sg.int32)

    def _scanned(self) -> tuple[Any, ...]:
        """The loop as a scan of a fixed number of steps."""
        self._settle()
        carry, rows = sg.scan(lambda carry, i: self._next(list(carry), i), self._first(), self._steps())
        return self._results(list(carry), list(rows))

    def _guarded(self) -> tuple[Any, ...]:
        """The loop as a scan of as many steps as there may be, of which those after its end do nothing."""
        self._settle()
        true = sg.constant(np.bool_(True))

        def step(carry: Sequence[sg.Output], i: sg.Output) -> tuple[list[Any], list[Any]]:
            going = sg.logical_and(carry[0], self._holds(carry[1:], i))
            states = list(carry[1:])
            following = sg.cond(going, lambda: self._next(states, i)[0], lambda: states)
            return [going, *following], []

        carry, _ = sg.scan(step, [true, *self._first()], self._steps())
        return self._results(list(carry)[1:], [])

    def _repeated(self) -> tuple[Any, ...]:
        """The loop as a ``while_loop``; it counts its steps if it draws random numbers."""
        self._settle()
        zero = sg.constant(np.int32(0))
        counted = [zero] if self._draws else []

        def going(*carry: sg.Output) -> Any:
            return self._holds(carry[len(counted) :], carry[0] if counted else zero)

        def step(*carry: sg.Output) -> list[Any]:
            i = carry[0] if counted else zero
            following, _ = self._next(carry[len(counted) :], i)
            return [*([sg.add(i, np.int32(1))] if counted else []), *following]

        last = sg.while_loop(going, step, [*counted, *self._first()], maximum_iterations=self.trips.count)
        return self._results(list(last)[len(counted) :], [])

    def _results(self, carry: Sequence[Any], rows: Sequence[Any]) -> tuple[Any, ...]:
        states = list(self.states)
        for k, x in zip(self._carried, carry, strict=True):
            states[k] = TensorList(self.states[k].length, None, None, x) if k in self._lists else x
        for k, x in zip(sorted(self.rows), rows, strict=True):
            states[k] = TensorList(self.trips.count, None, None, x)
        if self.trips.exact:
            for k, counter in self.trips.counters.items():
                if k not in self.fixed:
                    states[k] = _known(counter.after(self.trips.count), self.states[k].dtype)
        return tuple(states)

    # ------------------------------------------------------------------------------------------ unrolled

    def _unrolled(self) -> tuple[Any, ...]:
        """The loop unrolled, which needs to know at each step whether there is a next one."""
        states = list(self.states)
        for i in range(UNROLLED + 1):
            with self.node.inside(sg.constant(np.int32(i))):
                (more,) = self.node.call_known(self.condition, states)
                if not isinstance(more, Known) or more.is_symbolic:
                    raise Refused(
                        "whether its loop goes on is known only when the graph runs; "
                        "fix the inputs that decide with known={name: value}"
                    )
                if not bool(more.array.any()):
                    return tuple(states)
                states = self.node.call_known(self.body, states)
        raise Refused(f"its loop makes more than {UNROLLED} steps")


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, sg.Dim) == isinstance(b, sg.Dim) and bool(a == b)


def _depends(shape: Any) -> bool:
    return any(size is None for size in shape)


def _known(value: Any, dtype: Any) -> Known:
    if isinstance(value, sg.Dim):
        array = np.empty((), object)
        array[()] = value
        return Known(array, dtype)
    return Known(np.asarray(value, dtype.numpy))
