"""Assertions about gradients for tests, and the text of their failures."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stopgrad.base.errors import FlowError, GraphError
from stopgrad.base.garbage import without_gc
from stopgrad.base.structure import flatten, tensors_among
from stopgrad.flow.asked import Asked, asked, label, of_graph
from stopgrad.flow.explain import flow_of
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.parts import Reach
from stopgrad.flow.patterns import called
from stopgrad.flow.source_lines import excerpt, place
from stopgrad.flow.stories import of_what, stories_of
from stopgrad.flow.updates import told as told_of
from stopgrad.flow.words import counted, listed, names, plain, some
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Graph, Operation, Output, describe, title
from stopgrad.graph.public import guarded
from stopgrad.ops.structural.sources import Parameter, Placeholder
from stopgrad.transforms.gradients.transform_arguments import outputs_in

__tracebackhide__ = True  # pytest ends the traceback of a failure at the line of the test.


@guarded("assert_flows")
def assert_flows(
    ys: object, *args: object, to: object = None, argnums: int | Sequence[int] | None = None, **kwargs: object
) -> None:
    """Raise unless gradients of ys arrive at all these tensors.

    Args:
        ys: as for :func:`explain`: outputs of a graph; or a function, which is not computed.
        args: the xs; or the function's arguments.
        to: for a function, the arguments that the assertion is about, such as ``"params.w"``, ``"params"``
            for all below it, or a list of these; all that carry gradients unless given. For a graph, the xs,
            also by name.
        argnums: for a function, the positions of the arguments that are asked about; all unless given.
        kwargs: the function's keyword arguments.

    Raises:
        FlowError: some do not; it names what cuts the paths to these, and the lines.
        GraphError, GradientError: what is asked about does not exist.

    Examples:
        >>> def loss(params, x):
        ...     return sg.reduce_sum(params["w"] * sg.stop_gradient(params["v"]) * x)
        >>> sg.assert_flows(loss, {"w": 1.0, "v": 2.0}, 3.0, to=["params.w", "x"])
    """
    question, keys = _question("assert_flows", ys, args, kwargs, to, argnums)
    flows_or_raise("assert_flows", _flow(question), keys)


@guarded("assert_blocked")
def assert_blocked(
    ys: object,
    *args: object,
    to: object = None,
    by: object = None,
    argnums: int | Sequence[int] | None = None,
    **kwargs: object,
) -> None:
    """Raise if a gradient of ys arrives at any of these tensors.

    Args:
        ys, args, to, argnums, kwargs: as for :func:`assert_flows`.
        by: what must cut the paths to each of them; anything may unless given. An operation or an output of
            one; the name of an operation, or of a scope that it is in; a line, such as ``"model.py:14"``; or
            a structure of these, one of which must cut.

    Raises:
        FlowError: some do, and it names the lines of an open path; or something else cuts them.
        GraphError, GradientError: what is asked about, or what should cut it, does not exist.

    Examples:
        >>> def loss(params, x):
        ...     return sg.reduce_sum(params["w"] * sg.stop_gradient(params["v"], name="frozen") * x)
        >>> sg.assert_blocked(loss, {"w": 1.0, "v": 2.0}, 3.0, to="params.v", by="frozen")
    """
    question, keys = _question("assert_blocked", ys, args, kwargs, to, argnums)
    blocked_or_raise("assert_blocked", _flow(question), keys, by)


@guarded("assert_only_flows")
def assert_only_flows(
    ys: object,
    *args: object,
    to: object = None,
    among: object = None,
    argnums: int | Sequence[int] | None = None,
    **kwargs: object,
) -> None:
    """Raise unless gradients of ys arrive at these tensors and at no other.

    Args:
        ys, args, to, argnums, kwargs: as for :func:`assert_flows`; a function needs *to*.
        among: the tensors or arguments that are checked. Unless given, for a function all arguments; for a
            graph all parameters, and all placeholders that carry gradients, from which ys are computed.

    Raises:
        FlowError: gradients arrive at others, or not at these.
        GraphError, GradientError: what is asked about does not exist.

    Examples:
        >>> def loss(params, x):
        ...     return sg.reduce_sum(params["w"] * sg.stop_gradient(params["v"] * x))
        >>> sg.assert_only_flows(loss, {"w": 1.0, "v": 2.0}, 3.0, to=["params.w"])
    """
    what = "assert_only_flows"
    question, wanted = _question(what, ys, args, kwargs, to, argnums, needs_to=True)
    if not question.is_function:
        looked_at = _sources(question) if among is None else _tensors(what, "among", question.graph, among)
        question = of_graph(what, list(question.ys), [*looked_at, *wanted])
        keys = list(question.xs)
    else:
        keys = list(question.xs) if among is None else _arguments(what, question, among)
        keys = list(dict.fromkeys([*keys, *wanted]))
    only_flows_or_raise(what, _flow(question), keys, wanted)


# ---------------------------------------------------------------------------------------- of any report


def flows_or_raise(what: str, flow: Flow, keys: Sequence[Any]) -> None:
    """Raise unless gradients arrive at all these keys of a report; *what* names the assertion.

    Raises:
        FlowError: some do not.
    """
    missing = [key for key in keys if not flow[key].arrives]
    if missing:
        raise FlowError(
            f"{what}: gradients{of_what(flow)} do not arrive at {_names(missing, flow)}, and should\n\n"
            f"{stories_of(flow[missing])}"
        )


def blocked_or_raise(what: str, flow: Flow, keys: Sequence[Any], by: object = None) -> None:
    """Raise if a gradient arrives at any of these keys of a report, or if something other than *by* cuts.

    Raises:
        FlowError: that is so.
        GraphError: *by* does not exist.
    """
    gate = None if by is None else _Gate(what, by, flow)
    arriving = [key for key in keys if flow[key].arrives]
    if arriving:
        raise FlowError(
            f"{what}: gradients{of_what(flow)} arrive at {_names(arriving, flow)}, and should not\n\n"
            f"{_open_path(flow, arriving[0])}\n\n{stories_of(flow[arriving])}"
        )
    if gate is not None:
        others = [key for key in keys if not gate.cuts(flow[key])]
        if others:
            verb = "is" if len(others) == 1 else "are"
            raise FlowError(
                f"{what}: {_names(others, flow)} {verb} not cut by {gate.name}{gate.idle(flow)}\n\n"
                + stories_of(flow[others])
            )


def held_or_raise(what: str, flow: Flow, keys: Sequence[Any]) -> None:
    """Raise if an update moves any of these keys of a report; *what* names the assertion.

    Raises:
        FlowError: some move.
    """
    moving = [key for key in keys if flow[key].moves]
    if moving:
        lines = "\n".join([f"{plain(label(key))}: {told_of(flow[key].update)}" for key in moving[:SHOWN]])
        raise FlowError(
            f"{what}: an update moves {_names(moving, flow)}, and should not\n\n{lines}\n\n"
            f"{stories_of(flow[moving])}"
        )


def only_flows_or_raise(what: str, flow: Flow, keys: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Raise unless gradients arrive at the wanted ones of these keys of a report and at no other.

    Raises:
        FlowError: that is so.
    """
    expected = dict.fromkeys(wanted)
    extra = [key for key in keys if key not in expected and flow[key].arrives]
    missing = [key for key in keys if key in expected and not flow[key].arrives]
    complaints = [f"arrive at {_names(extra, flow)} too"] if extra else []
    if missing:
        complaints.append(f"do not arrive at {_names(missing, flow)}")
    if complaints:
        path = f"{_open_path(flow, extra[0])}\n\n" if extra else ""
        raise FlowError(
            f"{what}: gradients{of_what(flow)} should arrive at {_names(wanted, flow)} only; "
            f"they {listed(complaints)}\n\n"
            f"{path}{stories_of(flow[extra + missing])}"
        )


SHOWN = 6
"""The most lines of an open path that are shown, those next to its ends; and the most names."""


# ------------------------------------------------------------------------------------------ questions


def _question(
    what: str,
    ys: object,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    to: object,
    argnums: int | Sequence[int] | None,
    needs_to: bool = False,
) -> tuple[Asked, list[Any]]:
    """The question, and the keys that the assertion is about."""
    if callable(ys) and not isinstance(ys, (Output, Operation)):
        question = asked(what, ys, args, kwargs, argnums)
        if needs_to and to is None:
            raise GraphError(f"{what}: say with to=[...] which arguments gradients should arrive at")
        keys = (
            [key for key, x in question.xs.items() if x.type.differentiable]
            if to is None
            else _arguments(what, question, to)
        )
    else:
        if len(args) + (to is not None) != 1 or kwargs:
            raise GraphError(f"{what}: takes ys and xs, or a function, its arguments, and to= which of these")
        roots = outputs_in(ys, f"{what}: ys")
        xs = args[0] if args else to
        tensors = list(tensors_among(xs)) if args and not isinstance(xs, str) else xs
        if roots and isinstance(tensors, (str, list, tuple, set, frozenset, dict)):
            tensors = _tensors(what, "xs", roots[0].graph, tensors)
        question = asked(what, roots, (tensors,), {}, argnums)
        keys = list(question.xs)
    if not keys and not needs_to:
        raise GraphError(f"{what}: nothing is asked about; give at least one tensor")
    return question, keys


def _flow(question: Asked) -> Flow:
    return without_gc(flow_of, question)


def _arguments(what: str, question: Asked, to: object) -> list[Any]:
    """The arguments of a function with these names, and those below."""
    arguments: dict[Any, None] = {}
    for name in flatten(to)[0]:
        if not isinstance(name, str):
            raise GraphError(
                f"{what}: the arguments of a function are named, as 'params.w', not {name!r:.60}"
            )
        below = called(name, question.xs)
        if not below:
            raise GraphError(f"{what}: there is no argument {name!r}{_close(name, list(question.xs))}")
        arguments |= dict.fromkeys(below)
    return list(arguments)


def _tensors(what: str, which: str, graph: Graph, xs: object) -> list[Output]:
    """Outputs of a graph, given directly or by name; a scope stands for the parameters inside it."""
    tensors: list[Output] = []
    for x in flatten(xs)[0]:
        tensors += _outputs_named(what, graph, x) if isinstance(x, str) else outputs_in(x, f"{what}: {which}")
    return tensors


def _outputs_named(what: str, graph: Graph, name: str) -> list[Output]:
    """The tensor of this name, or the inputs in the scope of this name."""
    op_name, _, index = name.partition(":")
    op = graph.operation(op_name)
    if op is not None and (index.isdecimal() or not index) and int(index or 0) < len(op.outputs):
        return [op.outputs[int(index or 0)]]
    inputs = [op for op in graph.operations if op.definition in (Parameter, Placeholder)]
    below = [op.outputs[0] for op in inputs if op.name.startswith(f"{name}/")]
    if below:
        return below
    candidates = [op.name for op in inputs] + [op.name for op in graph.operations]
    raise GraphError(f"{what}: the graph has no tensor {name!r}{_close(name, candidates)}")


def _sources(question: Asked) -> list[Output]:
    """The parameters, and the placeholders that carry gradients, from which ys are computed."""
    return [
        op.outputs[0]
        for op in question.graph.subgraph_to(question.ys)
        if op.definition in (Parameter, Placeholder) and op.outputs[0].type.differentiable
    ]


def _close(name: str, names: Sequence[str], fallback: Sequence[str] | None = None) -> str:
    """The known names that are similar; if there is none, a list of known names."""
    close = [candidate for candidate in dict.fromkeys(names) if candidate.lower() == name.lower()]
    close = close or difflib.get_close_matches(name, list(dict.fromkeys(names)), 3)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    shown = names if fallback is None else fallback
    return f"; there are {some(shown, SHOWN)}" if shown else "; there are none"


# ---------------------------------------------------------------------------------------------- gates


class _Gate:
    """The operations that should cut, from any form of *by*."""

    def __init__(self, what: str, by: object, question: Asked | Flow) -> None:
        self._operations: dict[Operation, None] = {}
        labels = []
        above = question.graph.subgraph_to(question.ys)
        for gate in flatten(by)[0]:
            if isinstance(gate, str):
                operations = _operations_called(what, gate, question)
                labels.append(repr(gate))
            elif isinstance(gate, (Operation, Output)) or hasattr(gate, "as_output"):
                op = gate if isinstance(gate, Operation) else gate.as_output().op
                if op.graph is not question.graph and op not in set(walk(above)):
                    raise GraphError(
                        f"{what}: by, which is {describe(op)}, belongs to another graph; "
                        "name it, or its line, where a function is asked about"
                    )
                operations = [op]
                labels.append(f"{title(op)}{f' at {place(op.location)}' if op.location else ''}")
            else:
                raise GraphError(
                    f"{what}: by is an operation, an output, a name or a line as 'model.py:14', "
                    f"not {gate!r:.60}"
                )
            self._operations |= dict.fromkeys(operations)
        if not labels:
            raise GraphError(f"{what}: by is empty; leave it out where anything may cut")
        self.name = " or ".join(labels)

    def cuts(self, reach: Reach) -> bool:
        return any(op in self._operations for cut in reach.cuts for op in cut.operations)

    def idle(self, flow: Flow) -> str:
        """Why it does nothing; empty if it does something."""
        gates = [gate for gate in flow.gates if gate.operation in self._operations]
        why = {gate.why_idle for gate in gates}
        return f", which does nothing: {gates[0].why_idle}" if gates and "" not in why else ""


def _operations_called(what: str, name: str, question: Asked | Flow) -> list[Operation]:
    """The operations of a name, a scope or a line."""
    operations = list(walk(question.graph.subgraph_to(question.ys)))
    plain_name = re.sub(r":\d+$", "", name)
    matches = [op for op in operations if op.name in (name, plain_name) or op.name.startswith(f"{name}/")]
    line = re.fullmatch(r"(?P<file>.+):(?P<line>\d+)", name)
    if not matches and line is not None:
        file, number = line["file"].replace("\\", "/"), int(line["line"])
        matches = [op for op in operations if _is_at(op, file, number)]
    if matches:
        return matches
    gates = [op for op in operations if op.definition.passes is not None]
    if line is not None:
        where = dict.fromkeys([place(op.location.cause) for op in gates if op.location])
        raise GraphError(
            f"{what}: nothing that gradients could pass was built at {name}; gates stand at "
            f"{listed(list(where)) or 'no line'}"
        )
    gate_names = list(dict.fromkeys([op.name for op in gates]))
    scopes = [scope for op in operations for scope in _scopes(op.name)]
    raise GraphError(
        f"{what}: there is no operation or scope {name!r}"
        + _close(name, [*gate_names, *scopes, *[op.name for op in operations]], gate_names)
    )


def _scopes(name: str) -> list[str]:
    """The scopes that an operation is in."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def _is_at(op: Operation, file: str, number: int) -> bool:
    """Whether an operation was built at a line, or in a library's code that the line called."""
    location = op.location
    while location is not None:
        path = location.file.replace("\\", "/")
        if location.line <= number <= (location.end_line or location.line) and (
            path == file or path.endswith(f"/{file.removeprefix('./')}")
        ):
            return True
        location = location.caller
    return False


# ------------------------------------------------------------------------------------------- messages


def _names(keys: Sequence[Any], flow: Flow) -> str:
    return names([label(key) for key in keys], flow.xs)


def _open_path(flow: Flow, key: object) -> str:
    """The lines of an open path, from the result to the tensor."""
    steps: dict[str, tuple[str, list[str]]] = {}
    for op in flow.open_path(key):
        if flow.is_function and op.definition is Placeholder:
            continue  # The line of an argument is that of the question itself.
        location = op.location
        where = title(op) if location is None else place(location)
        source = excerpt(location)[:1]
        if where not in steps:
            steps[where] = (where.rpartition(":")[0], source) if source else (where, [])
    shown = list(steps.values())
    more = len(shown) - SHOWN
    if more > 1:
        shown[SHOWN // 2 : -SHOWN // 2] = [(f"... {counted(more, 'more line')} ...", [])]
    lines = [f"an open path to {plain(label(key))}, backwards:"]
    last = ""
    for where, source in shown:
        lines += source if source and where == last else [f"  {where}", *source]
        last = where
    return "\n".join(lines)
