"""Divides an optimiser's step into scalars, and functions of each element that write over what they read.

Most optimisers treat each element alike: its new value depends on it, its gradient, its own state, and on a
few scalars that all share. Then a step needs no second copy of the state, and it can go through all tensors
in blocks that stay in the processor's cache, where a whole graph uses main memory at each operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import stopgrad as sg
from stopgrad.graph.graph import Graph, Operation, Output, by_id, needed
from stopgrad.interop.onnx.training.graph_building import Step
from stopgrad.interop.onnx.training.graph_signatures import carried, gradients_plan
from stopgrad.interop.onnx.training.manifest import Plan, Port, unique
from stopgrad.ops.elementwise.arithmetic import AddV2, Mul, RealDiv, Sub
from stopgrad.ops.structural.sources import Const, Placeholder
from stopgrad.rewrite import erase_gates, merge, rewrite
from stopgrad.rewrite.engine import Copying

_OVER = (AddV2, Mul, RealDiv, Sub)
"""Operations that a runtime may compute in the memory of an operand."""


@dataclass
class Function:
    """A function of each element, and the tensors that it renews.

    Attributes:
        plan: its inputs and outputs, of any size.
        members: the names of tensors by the names of inputs, for each group of tensors that belong together.
    """

    plan: Plan
    members: list[dict[str, str]] = field(default_factory=list)


@dataclass
class InPlace:
    """An optimiser's step, divided.

    Attributes:
        backward: the loss, the gradients, and what the model itself renews; None if that is nothing, so
            that the graph of the gradients is all that is needed.
        scalars: the scalars that the functions take, and the new values of those that are carried.
        functions: of each element.
    """

    backward: Plan | None
    scalars: Plan
    functions: list[Function]

    def plans(self) -> dict[str, Plan]:
        """The graphs besides those that every folder has, by name."""
        plans = {} if self.backward is None else {"backward": self.backward}
        return (
            plans | {"scalars": self.scalars} | {f"update_{i}": f.plan for i, f in enumerate(self.functions)}
        )

    def entry(self) -> dict[str, Any]:
        """As the manifest says it."""
        return {
            "backward": "gradients" if self.backward is None else "backward",
            "scalars": "scalars",
            "functions": [
                {"graph": f"update_{i}", "members": f.members} for i, f in enumerate(self.functions)
            ],
        }


def in_parts(step: Step) -> tuple[dict[str, Plan], dict[str, Any]]:
    """The graphs of a step in parts, by name, and what the manifest says of them; nothing if it has none."""
    update = divided(step)
    return ({}, {}) if update is None else (update.plans(), {"update": update.entry()})


def divided(step: Step) -> InPlace | None:
    """An optimiser's step, divided; None if it treats not each element alike."""
    moved = [port for port in carried(step) if step.kinds[port.name] in ("parameter", "optimizer")]
    inputs = [*[port.value for port in moved], *step.gradients.values()]
    inputs += [] if step.rate is None else [step.rate]
    inputs = list(dict.fromkeys(inputs))
    done = rewrite([step.renewed[port.name] for port in moved], inputs, (erase_gates, merge))
    own = set(done.inputs)
    if any(op.definition is Placeholder and op.outputs[0] not in own for op in done.graph.operations):
        return None  # It needs more of the model.
    new = dict(zip(inputs, done.inputs, strict=True))
    ports = {port.name: port for port in moved}
    before = {new[port.value]: name for name, port in ports.items()}
    gradients = {new[g]: name for name, g in reversed(step.gradients.items()) if new[g] not in before}
    after = dict(zip(ports, done.outputs, strict=True))
    cones = _cones({n: y for n, y in after.items() if y.shape}, {*before, *gradients})
    if cones is None:
        return None
    functions: dict[Any, Function] = {}
    taken = {*ports, "learning_rate"}
    scalars: dict[Output, str] = {}
    for names in _components(cones, before):
        group = _Group({n: after[n] for n in names}, [cones[n] for n in names], before, gradients)
        if not group.alike:
            return None
        for x in group.scalars:
            if x not in scalars:
                scalars[x] = unique(f"scalar_{len(scalars)}", taken)
        key = group.key()
        if key not in functions:
            functions[key] = Function(group.plan(ports, scalars))
        functions[key].members.append(group.members)
    sources = {x: ports[n] for x, n in before.items()}
    sources |= {x: Port(f"{n}/gradient", "gradient", x, {"of": n}) for x, n in gradients.items()}
    if step.rate is not None:
        sources[new[step.rate]] = Port("learning_rate", "learning_rate", step.rate)
    renewed = {n: y for n, y in after.items() if not y.shape}
    return InPlace(
        _backward(step), _scalars_plan(scalars, renewed, ports, sources, taken), list(functions.values())
    )


def _backward(step: Step) -> Plan | None:
    """The gradients, and what the model renews itself; None if that is nothing."""
    plan = gradients_plan(step)
    taken = {port.name for port in (*plan.inputs, *plan.outputs)}
    own = [port for port in carried(step) if step.kinds[port.name] not in ("parameter", "optimizer")]
    renewed = [
        Port(unique(f"{port.name}/new", taken), port.role, step.renewed[port.name], {"updates": port.name})
        for port in own
    ]
    return Plan(plan.inputs, [*plan.outputs, *renewed]) if own else None


def _scalars_plan(
    scalars: Mapping[Output, str],
    renewed: Mapping[str, Output],
    ports: Mapping[str, Port],
    sources: Mapping[Output, Port],
    taken: set[str],
) -> Plan:
    """The shared scalars and the new values of those that are carried, from what these need."""
    outputs = [Port(name, "scalar", x) for x, name in scalars.items()]
    outputs += [Port(unique(f"{n}/new", taken), ports[n].role, y, {"updates": n}) for n, y in renewed.items()]
    ys = [port.value for port in outputs]
    read = {x for op in needed(ys, sources) for x in op.inputs} | set(ys)
    inputs = [Port(port.name, port.role, x, port.more) for x, port in sources.items() if x in read]
    return Plan(inputs, outputs)


# --------------------------------------------------------------------------------------------- cones


@dataclass
class _Cone:
    """What one element of a new value is computed by.

    Attributes:
        operations: in order.
        ends: the tensors that they read.
    """

    operations: list[Operation]
    ends: list[Output]


def _cones(results: Mapping[str, Output], leaves: set[Output]) -> dict[str, _Cone] | None:
    """The cone of each result; None if one is not computed element by element."""
    cones = {}
    for name, y in results.items():
        cone = None if y in leaves else _cone(y, leaves)
        if cone is None:
            return None
        cones[name] = cone
    return cones


def _cone(y: Output, leaves: set[Output]) -> _Cone | None:
    waiting, ends = [y], []
    seen: set[Output] = set()
    operations: set[Operation] = set()
    while waiting:
        x = waiting.pop()
        if x in seen:
            continue
        seen.add(x)
        if x in leaves or (not x.shape and x.op.definition is not Const):
            if x.shape and x.shape != y.shape:
                return None
            ends.append(x)
            continue
        alike = x.op.definition.elementwise and len(x.op.outputs) == 1 and x.shape == y.shape
        if not alike and (x.shape or x.op.definition is not Const):
            return None
        operations.add(x.op)
        waiting += x.op.inputs
    return _Cone(sorted(operations, key=by_id), sorted(ends, key=lambda x: by_id(x.op)))


def _components(cones: Mapping[str, _Cone], before: Mapping[Output, str]) -> list[list[str]]:
    """Tensors that belong together, since the new value of one depends on another: parameters first."""
    above = {name: name for name in cones}

    def top(name: str) -> str:
        while above[name] != name:
            name = above[name]
        return name

    for name, cone in cones.items():
        for x in cone.ends:
            if x.shape and x in before:
                above[top(before[x])] = top(name)
    groups: dict[str, list[str]] = {}
    for name in cones:
        groups.setdefault(top(name), []).append(name)
    return list(groups.values())


def _in_order(results: Iterable[Output], these: set[Operation]) -> list[Operation]:
    """Operations in an order that does not depend on when they were built."""
    done: dict[Operation, None] = {}
    waiting = [(y.op, False) for y in reversed(list(results))]
    while waiting:
        op, ready = waiting.pop()
        if op in done or op not in these:
            continue
        if ready:
            done[op] = None
        else:
            waiting.append((op, True))
            waiting += [(x.op, False) for x in reversed(op.inputs)]
    return list(done)


class _Group:
    """Tensors that belong together.

    Attributes:
        members: their names and those of gradients, by the names of a function's inputs.
        scalars: what they depend on besides.
        alike: whether they are of one shape, and the gradients their own.
    """

    def __init__(
        self,
        results: Mapping[str, Output],
        cones: Sequence[_Cone],
        before: Mapping[Output, str],
        gradients: Mapping[Output, str],
    ) -> None:
        self.results = results
        self.operations = _in_order(results.values(), {op for cone in cones for op in cone.operations})
        ends = dict.fromkeys(x for cone in cones for x in cone.ends)
        self.scalars = [x for x in ends if not x.shape]
        own = {before[x]: x for x in ends if x.shape and x in before}
        self.arrays = {f"value_{i}": own[n] for i, n in enumerate(results) if n in own}
        self.members = {port: before[x] for port, x in self.arrays.items()}
        arriving = [x for x in ends if x.shape and x not in before]
        self.arrays |= {f"gradient_{i}": x for i, x in enumerate(arriving)}
        self.members |= {f"gradient_{i}": gradients[x] for i, x in enumerate(arriving)}
        self.alike = len(own) == len(results) and len({tuple(y.shape) for y in results.values()}) == 1
        self.alike = self.alike and all(gradients[x] in results for x in arriving)

    def key(self) -> Any:
        """What equal functions share, whatever the sizes of their tensors."""
        numbers: dict[Output, Any] = {x: (port, x.dtype) for port, x in self.arrays.items()}
        numbers |= {x: by_id(x.op) for x in self.scalars}
        described = []
        for op in self.operations:
            inputs = tuple(numbers[x] for x in op.inputs)
            described.append((op.definition, inputs, op.definition.identity(op.values)))
            numbers[op.outputs[0]] = ("made", len(numbers))
        return tuple(described), tuple(numbers[y] for y in self.results.values())

    def plan(self, ports: Mapping[str, Port], scalars: Mapping[Output, str]) -> Plan:
        """The function, of tensors of one axis and any size."""
        graph, mapping = Graph(), {}
        inputs = []
        with graph.as_default():
            for name, x in self.arrays.items():
                mapping[x] = sg.placeholder(x.dtype, ["size"], name=name)
                role = ports[self.members[name]].role if name.startswith("value") else "gradient"
                inputs.append(Port(name, role, mapping[x]))
            for x in self.scalars:
                mapping[x] = sg.placeholder(x.dtype, (), name=scalars[x])
                inputs.append(Port(scalars[x], "scalar", mapping[x]))
        Copying(graph, (), None).copy(self.operations, mapping)
        outputs: list[Port] = []
        for name, y in zip(self.arrays, self.results.values(), strict=False):
            more = {"updates": name, "over": self._may_be_over(self.arrays[name], y)}
            outputs.append(Port(f"{name}/new", inputs[len(outputs)].role, mapping[y], more))
        return Plan(inputs, outputs)

    def _may_be_over(self, x: Output, y: Output) -> bool:
        """Whether a new value may be written over the old one: all that read this are done by then."""
        before = set(needed([y], set(self.arrays.values()) | set(self.scalars)))
        readers = {op for op in self.operations if x in set(op.inputs)}
        return readers <= before and (y.op not in readers or y.op.definition in _OVER)
