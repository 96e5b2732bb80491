"""The recorder: runs each call of PyTorch and records what it did to gradients."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stopgrad.base.source import RawLocation, decode
from stopgrad.flow.source_lines import place as place_text
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.answers import Answers
from stopgrad.interop.torch.recording.autograd_nodes import FLAT, OVERWRITTEN, Reached, node_of, sizes_of
from stopgrad.interop.torch.recording.call_tensors import ATOMS, tensors_in, unwrapped
from stopgrad.interop.torch.recording.effects_on_gradients import Act, Call
from stopgrad.interop.torch.recording.measuring import run_measured
from stopgrad.interop.torch.recording.places import Around, hooks_of, place_of, user_frame, with_caller
from stopgrad.interop.torch.recording.record import (
    FLOATS,
    WRITES,
    Backward,
    Event,
    Kind,
    Region,
    Sizes,
    Value,
    is_open,
    not_open,
    now,
    seen_from,
    stop,
)
from stopgrad.interop.torch.recording.regions import transform
from stopgrad.interop.torch.recording.used import Used, made_by, used_as
from stopgrad.interop.torch.recording.user_backwards import NOT_DIFFERENTIABLE

Tensor = torch.Tensor
Parameter = torch.nn.Parameter
version_of: Callable[[Any], int] = internals.version_of
_next_node = internals.next_node
"""The sequence number of the next node that autograd makes in this thread."""
_transformed: Callable[[], Any] = internals.peek_interpreter_stack
_OPERATION = Kind.OPERATION  # Reading it from its class takes longer.
STOPPED, DISCONNECTED = "stopped", "disconnected"
TANGENT = "it is the tangent, which autograd follows by itself"
Wall = tuple[int, str, str]


class Recorder(Answers):
    """Records what happens during a watch."""

    def __init__(self) -> None:
        super().__init__()
        self._callers = Around()
        self._began = 0

    def begin(self) -> None:
        """Begin to record."""
        self.nodes.started = _next_node()
        self.nodes.ended = []
        super().begin()

    def ending(self) -> Callable[[], object]:
        """The function, implemented in C, that notes that the record ends."""
        return functools.partial(self.nodes.ended.extend, map(operator.call, [_next_node]))

    # ------------------------------------------------------------------------------------ the calls

    def run(
        self, call: Call, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function of PyTorch and record what it did."""
        act = call.act
        if act is Act.NOTHING:  # Of a class that holds tensors; others do not come here.
            return function(*args, **kwargs)
        if act is Act.MODE:
            self.switch(bool(args[0]))
            return function(*args, **kwargs)
        here = self.here()
        if here is not None and here.ignored:
            return function(*args, **kwargs)
        if act is Act.GRADIENT:
            if self.observer is not None:
                self.observer.gradient(args[0], len(args) > 1, place_of(user_frame(sys._getframe(1))))
            return function(*args, **kwargs)
        place = self._callers.enter(user_frame(sys._getframe(1)))
        if act is Act.REQUIRE and _transformed() is not None:
            return self._call(function, args, kwargs, place)  # This concerns the wrapper alone.
        # Whatever fails in here is told in the report. The program that is watched goes on.
        try:
            used = (
                self._used(args[:1], {}, place, here) if call.alike else self._used(args, kwargs, place, here)
            )
            self._began = now()
            if act is Act.BACKWARD or act is Act.GRAD:
                self._backward(call, args, kwargs, place, here)
        except Exception as error:
            self.lose(call, place, error)
            return function(*args, **kwargs)
        try:
            if act is Act.BACKWARD or act is Act.GRAD:
                result = run_measured(self, self.backwards[-1].sizes, function, args, kwargs)
            else:
                result = function(*args, **kwargs)
        except Exception as error:
            self.explain(self, error, place, (*args, *kwargs.values()))
            raise
        try:
            if (act is Act.BACKWARD or act is Act.GRAD) and self.observer is not None:
                self.observer.ended(self.backwards[-1])
            if call.classifies and self.observer is not None:
                self.observer.classified(call.name, (*args, *kwargs.values()), place)
            if act is Act.GRAD and len(args) > 1:
                self._note_arrivals(args[1], result)
            _ACTIONS[act](self, call, used, result, place, here)
        except Exception as error:
            self.lose(call, place, error)
        return result

    def run_plainly(
        self, call: Call, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """What :meth:`run` does, for plain operations while gradients are on.

        No function of ``torch.func`` runs. Most operations make one tensor that has a node, and write into
        none; to ask for nothing else takes a tenth off the forward pass of 20 layers.
        """
        place = self._callers.enter(user_frame(sys._getframe(1)))
        tensors: list[Tensor] = []
        try:
            for x in (*args, *kwargs.values()) if kwargs else args:
                kind = type(x)
                if kind is Tensor or kind is Parameter:
                    tensors.append(x)
                elif kind not in ATOMS:
                    tensors += tensors_in(x)
            value_of = self.value_of
            values = [value_of(x, place, None) for x in tensors]
            versions = [version_of(x) for x in tensors]
            if self.departures:
                values += self.departures.returning((args, kwargs), place)
            self._began = now()
        except Exception as error:
            self.lose(call, place, error)
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            self.explain(self, error, place, (*args, *kwargs.values()))
            raise
        try:
            if call.classifies and self.observer is not None:
                self.observer.classified(call.name, (*args, *kwargs.values()), place)
            node = node_of(result) if type(result) is Tensor else None
            if node is not None:
                for x, version in zip(tensors, versions, strict=True):
                    if x is result or version_of(x) != version:
                        break
                else:
                    self._made_anew(call, values, result, node, place)
                    return result
            self._operation(call, used_as(tensors, values, versions), result, place, None)
        except Exception as error:
            self.lose(call, place, error)
        return result

    def _made_anew(
        self,
        call: Call,
        values: Sequence[Value],
        result: Tensor,
        node: torch.autograd.graph.Node,
        place: RawLocation | None,
    ) -> None:
        """Record an operation that made one tensor that has a node, and wrote into none."""
        inputs = tuple(dict.fromkeys(values))
        opens = [value for value in inputs if value.open]
        walls: tuple[Wall, ...] = ()
        if not opens or not self.nodes.reaches_just(node, opens):
            inputs, walls = self._by_autograd(call, inputs, result, node, None, place)
        event = Event(_OPERATION, call.name, place, inputs, walls)
        event.calls = self._callers.calls
        sizes = sizes_of(result)
        value = event.result(sizes, sizes[0] in FLOATS and is_open(inputs, walls))
        self.nodes.note(node, result.output_nr, value)
        self.memory.meet(result, value, event.serial)

    def _call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        place: RawLocation | None,
    ) -> Any:
        """Call a function of which nothing is recorded but why it fails."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self.explain(self, error, place, (*args, *kwargs.values()))
            raise

    def lose(self, call: Call, place: RawLocation | None, error: Exception) -> None:
        """Note that a call could not be recorded."""
        where = "" if place is None else f" at {place_text(decode(place))}"
        what = f"{call.name}{where} was not recorded ({type(error).__name__}: {error})"
        self.not_known(f"{what}; what comes of it is not known")

    def _used(
        self, args: Sequence[Any], kwargs: dict[str, Any], place: RawLocation | None, here: Region | None
    ) -> list[Used]:
        """The tensors among the arguments, each once, with their values before the call."""
        used: list[Used] = []
        seen: dict[int, None] = {}
        wrapped = _transformed() is not None
        for x in (*args, *kwargs.values()) if kwargs else args:
            kind = type(x)
            if kind in ATOMS:
                continue
            for tensor in (x,) if (kind is Tensor or kind is Parameter) and not wrapped else tensors_in(x):
                if id(tensor) not in seen:
                    seen[id(tensor)] = None
                    value = self.value_of(tensor, place, here)
                    used.append(Used(tensor, value, version_of(tensor)))
        if self.departures:
            used += [Used(None, value) for value in self.departures.returning((args, kwargs), place)]
        return used

    def _backward(
        self,
        call: Call,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        place: RawLocation | None,
        here: Region | None,
    ) -> None:
        """Record that a backward pass begins."""
        losses = next(iter([*args, *kwargs.values()]), ())
        values = tuple([self.value_of(unwrapped(tensor), place, here) for tensor in tensors_in(losses)])
        kind = "grad" if call.act is Act.GRAD else "backward"
        self.backwards.append(Backward(kind, values, place, Sizes(), number=_next_node()))
        if self.observer is not None:
            self.observer.begins(self.backwards[-1], list(tensors_in(losses)))

    def _operation(
        self,
        call: Call,
        used: Sequence[Used],
        result: object,
        place: RawLocation | None,
        here: Region | None,
    ) -> None:
        """Record an operation: what it made, and what it wrote into."""
        outputs = made_by(call, used, result)
        events: dict[Any, Event] = {}
        positions = {id(tensor): k for k, tensor in enumerate(tensors_in(result))} if call.apart else {}
        for position, (tensor, into) in enumerate(outputs):
            if into is not None:
                self.memory.note_writes((tensor,), call.name, place)
            took, node = used, node_of(tensor)
            if call.apart:
                spot, count = positions.get(id(tensor), position), len(positions) or len(outputs)
                took = [operand for k, operand in enumerate(used) if k % count == spot]
                took = took or [operand for operand in used if node is None or not operand.value.open]
            if node is not None:
                inputs, walls = self._by_autograd(
                    call, [operand.value for operand in took], tensor, node, into, place
                )
            elif tensor.requires_grad and (into is not None or here is None or not internals.is_view(tensor)):
                self._leaf_written(call, took, tensor, into, place, here)
                continue
            else:
                inputs, walls = self._untracked(call, took, tensor, into, here)
            event = events.get((inputs, walls)) if events else None
            if event is None:
                event = Event(Kind.OPERATION, call.name, place, inputs, walls, here)
                event.calls = self._callers.calls
                if len(outputs) > 1:
                    events[inputs, walls] = event
            if into is not None and inputs and inputs[0] is into.value:
                event.why = WRITES
            sizes = sizes_of(tensor)
            open = sizes[0] in FLOATS and is_open(inputs, walls)
            self._becomes(tensor, node, event.result(sizes, open), into)

    def _by_autograd(
        self,
        call: Call,
        used: Sequence[Value],
        tensor: Tensor,
        node: torch.autograd.graph.Node,
        into: Used | None,
        place: RawLocation | None,
    ) -> tuple[tuple[Value, ...], tuple[Wall, ...]]:
        """What autograd says of a result: the values it depends on, and which of them get no gradient."""
        reached, zeros = self.nodes.reached(node, place)
        inputs = dict.fromkeys(used)
        if into is not None and into.value not in reached and internals.is_view(tensor):
            # A view's gradient goes through its base, with all that was written into it with gradients on.
            whole = (
                internals.base_of(tensor) is not None and tensor.numel() == internals.base_of(tensor).numel()
            )
            through = self._rebased(call, reached, tensor, into.value, whole)
            if call.overwrites and through:  # Of what the view was, nothing is left.
                reached, zeros = {x: None for x in inputs if x in through and x is not into.value}, {}
            else:
                inputs = {x: None for x in inputs if x not in through and x is not into.value}
        inputs |= reached
        inputs |= zeros
        if len(inputs) == len(reached):
            return tuple(inputs), ()
        walls = []
        for i, value in enumerate(inputs):
            if into is not None and value is into.value and call.overwrites and value not in reached:
                walls.append((i, NOT_DIFFERENTIABLE, OVERWRITTEN))
                continue
            if value in reached or not (value.open or value in zeros):
                if call.act is Act.FACTORY and value not in reached:
                    walls.append((i, DISCONNECTED, ""))
                continue
            if call.dual:
                walls.append((i, DISCONNECTED, TANGENT))
                continue
            reason = FLAT if value in zeros else f"{call.name} passes no gradient to it"
            if into is not None and value is into.value:
                reason = OVERWRITTEN
            walls.append((i, NOT_DIFFERENTIABLE, reason))
        return tuple(inputs), tuple(walls)

    def _rebased(
        self, call: Call, reached: Reached, tensor: Tensor, before: Value, whole: bool
    ) -> set[Value]:
        """The values of a base after this call wrote into a view of it, which was *before*.

        Autograd tells of what has gradients; the value of the view before tells of the rest.
        """
        through: set[Value] = set()
        held = None if internals.base_of(tensor) is None else self.memory.held(internals.base_of(tensor))
        values = [before] if held is None or held.value.open else [before, seen_from(held.value, None)]
        for event in [value.event for value in reached if value.event.serial > self._began]:
            through.update(event.inputs)
            rest = [value for value in dict.fromkeys(values) if value not in event.inputs]
            if whole and call.overwrites:
                base = internals.base_of(tensor)
                node: Any = node_of(base)
                places = [0] if node.next_functions[0][0] is not None else []
                places += range(len(event.inputs), len(event.inputs) + len(rest))
                event.walls = tuple([(i, NOT_DIFFERENTIABLE, OVERWRITTEN) for i in places])
            event.inputs = (*event.inputs, *rest)
        return through

    def _untracked(
        self, call: Call, used: Sequence[Used], tensor: Tensor, into: Used | None, here: Region | None
    ) -> tuple[tuple[Value, ...], tuple[Wall, ...]]:
        """The same for a result that requires no gradient, from what is known of the function."""
        inputs = tuple(dict.fromkeys([operand.value for operand in used]))
        walls: list[Wall] = []
        numbers = {operand.value for operand in used if operand.tensor is None}
        for i, value in enumerate(inputs):
            if value in numbers:
                continue
            if into is not None and value is into.value and call.overwrites:
                walls.append((i, NOT_DIFFERENTIABLE, OVERWRITTEN))
            elif call.act is Act.FACTORY:
                walls.append((i, DISCONNECTED, "only its shape and dtype are read"))
            elif call.dual and i and value.open and here is None:
                walls.append((i, DISCONNECTED, TANGENT))
            elif not (tensor.is_floating_point() or tensor.is_complex()):
                continue  # The dtype says so already.
            elif call.flat:
                walls.append((i, NOT_DIFFERENTIABLE, FLAT))
            elif here is None and value.open and value.sizes[0] in FLOATS:
                walls.append((i, NOT_DIFFERENTIABLE, f"{call.name} passes no gradient to it"))
        return inputs, tuple(walls)

    def _leaf_written(
        self,
        call: Call,
        used: Sequence[Used],
        tensor: Tensor,
        into: Used | None,
        place: RawLocation | None,
        here: Region | None,
    ) -> None:
        """A result that is a leaf requiring a gradient: newly made, or written into without autograd."""
        if into is None:
            self.begin_leaf(tensor, place, call.name)
            return
        held = self.memory.held(tensor)
        # Earlier contents are still in it, unless all of it is overwritten.
        before = [] if held is None or call.overwrites else [held.content or held.value]
        others = tuple(dict.fromkeys([*before, *[operand.value for operand in used if operand is not into]]))
        event = Event(Kind.OPERATION, call.name, place, others, (), here)
        value = event.result(sizes_of(tensor), any(value.open for value in others))
        self.memory.written(tensor, value, self._began)

    def _becomes(
        self, tensor: Tensor, node: torch.autograd.graph.Node | None, value: Value, into: Used | None
    ) -> None:
        """Note a tensor's new value, which is also that of its memory if that was written into."""
        serial = value.event.serial
        if node is not None:
            self.memory.release(tensor)
            self.nodes.note(node, tensor.output_nr, value)
        else:
            self.memory.hold(tensor, value, serial)
        if into is None:
            self.memory.meet(tensor, value, serial)
            return
        store = self.memory.store(tensor)
        if store is None:
            self.memory.meet(tensor, value, serial)
        else:
            if not self.memory.is_all(tensor):
                part = value.event
                inputs = seen_from(store.value, part.region), value
                event = Event(Kind.OPERATION, part.call, part.place, inputs, region=part.region)
                value = event.result(store.value.sizes, any(value.open for value in inputs))
            # What autograd said of the tensor includes this call, and so what it wrote.
            self.memory.written(tensor, value, self._began)

    def _stop(
        self,
        call: Call,
        used: Sequence[Used],
        result: torch.Tensor,
        place: RawLocation | None,
        here: Region | None,
    ) -> None:
        """Record a function that passes values on, but no gradient."""
        sources = used[1:] if call.why.startswith("new_tensor") else used
        tensors = list(tensors_in(result))
        if len(tensors) != 1:
            self._operation(call, used, result, place, here)
            return
        result = tensors[0]
        if all(operand.tensor is None for operand in sources) or node_of(result) is not None:
            self._operation(call, sources, result, place, here)
            return
        source = sources[0].value
        if len(sources) > 1:
            inputs = tuple([operand.value for operand in sources])
            source = Event(Kind.OPERATION, call.name, place, inputs, (), here).result(
                sizes_of(result), any(value.open for value in inputs)
            )
        value = stop(source, call.name, call.why, place, here)
        self.memory.hold(result, value, value.event.serial)
        if call.writes:
            self.memory.written(result, value, value.event.serial)
        self.memory.meet(result, value, value.event.serial)
        if result.requires_grad:
            self.begin_leaf(result, place, call.name)

    def _leave(
        self, call: Call, used: Sequence[Used], result: object, place: RawLocation | None, here: Region | None
    ) -> None:
        """Record values that leave for Python."""
        if used:
            self.departures.note(result, seen_from(used[0].value, None), call.name, call.why, place)

    def _require(
        self,
        call: Call,
        used: Sequence[Used],
        result: torch.Tensor | None,
        place: RawLocation | None,
        here: Region | None,
    ) -> None:
        """Record that a leaf now requires a gradient, or no longer does."""
        tensor = used[0].tensor
        if node_of(tensor) is not None:
            return
        held = self.memory.held(tensor)
        if tensor.requires_grad and (held is None or held.root is None):
            self.begin_leaf(tensor, place)
        held = self.memory.held(tensor)
        if held is not None and held.root is not None:
            held.place = with_caller(place)
            self._settle(tensor, held, place)

    def _attach(
        self, call: Call, used: Sequence[Used], result: object, place: RawLocation | None, here: Region | None
    ) -> None:
        """Record that a tensor gets the memory of another."""
        if len(used) < 2:
            return
        into, source = used[0], used[1]
        value = source.value
        if value.open:
            value = stop(value, call.name, call.why, place, here)
        self.memory.meet(into.tensor, value, value.event.serial)
        node, held = node_of(into.tensor), self.memory.held(into.tensor)
        if node is not None:
            self.nodes.write(node, into.tensor.output_nr, self._written_into(into.value, value, into.tensor))
        elif held is not None and held.root is not None:
            held.content = value
            self._settle(into.tensor, held, place)
            held.serial = held.value.event.serial
        else:
            self.memory.hold(into.tensor, value, value.event.serial)

    def _graded(
        self, call: Call, used: Sequence[Used], result: object, place: RawLocation | None, here: Region | None
    ) -> None:
        """Record the gradients that ``torch.autograd.grad`` returned."""
        for tensor in tensors_in(result):
            if node_of(tensor) is not None:
                maker = self.value_of(tensor, place, here).event
                began = self.transforms.get(transform()) if transform() else None
                if began is not None:  # Autograd tells nothing of stopped values that the function uses.
                    rest = [value for operand in used[:1] for value in not_open(operand.value, began)]
                    maker.inputs = tuple(dict.fromkeys([*maker.inputs, *rest]))
            elif not tensor.requires_grad:
                inputs = tuple(dict.fromkeys([operand.value for operand in used]))
                event = Event(Kind.OPERATION, call.name, place, inputs, (), here)
                value = event.result(sizes_of(tensor), any(value.open for value in inputs))
                if not value.open or _transformed() is not None:
                    # The transformation's own result tells whether a gradient passes.
                    self.memory.hold(tensor, value, value.event.serial)
                    self.memory.meet(tensor, value, value.event.serial)
                    continue
                why = "torch.autograd.grad without create_graph=True"
                value = stop(value, call.name, why, place, here)
                self.memory.hold(tensor, value, value.event.serial)
                self.memory.meet(tensor, value, value.event.serial)

    def _hooked(
        self, call: Call, used: Sequence[Used], result: object, place: RawLocation | None, here: Region | None
    ) -> None:
        """Record that a result of an operation got a hook; a leaf's are found when it is asked about."""
        tensor, value = used[0].tensor, used[0].value
        if place is not None and value.event.kind is not Kind.LEAF and hooks_of(tensor):
            value.event.hooks += (with_caller(place) or place,)

    def _note_arrivals(self, inputs: Sequence[Tensor], result: Sequence[Tensor | None]) -> None:
        """Note of a backward pass of ``torch.func`` at which arguments gradients arrived."""
        arriving = {
            self.target(unwrapped(x)).value: grad is not None
            for x, grad in zip(inputs, result, strict=True)
            if internals.is_functorch_wrapped_tensor(x)
        }
        self.backwards[-1] = self.backwards[-1]._replace(arguments=tuple(arriving.items()))

    def _nothing(self, *_: object) -> None:
        """Record nothing."""


_ACTIONS: dict[Act, Callable[..., None]] = {
    Act.RECORD: Recorder._operation,
    Act.FACTORY: Recorder._operation,
    Act.STOP: Recorder._stop,
    Act.LEAVE: Recorder._leave,
    Act.BACKWARD: Recorder._nothing,
    Act.GRAD: Recorder._graded,
    Act.REQUIRE: Recorder._require,
    Act.ATTACH: Recorder._attach,
    Act.HOOK: Recorder._hooked,
}
