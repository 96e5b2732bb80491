"""Operations that hand their operands on: identities, gates, calls of functions, and what only orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import stopgrad as sg
from stopgrad.graph.builder import Inside
from stopgrad.interop.shared.building import label_from, scope_from
from stopgrad.interop.tensorflow.operators.calling import Call, Table, knows_all

T = TypeVar("T")


def _nothing(node: Call, *operands: object) -> None:
    """What only says in which order others run."""


@knows_all
def _same(node: Call, x: T) -> T:
    return x


@knows_all
def _each(node: Call, *xs: object) -> tuple[object, ...]:
    return xs


def gated(node: Call, gate: Callable[..., sg.Output], x: sg.Output, *settings: object) -> sg.Output:
    """A gate under the name of its node."""
    head, _, last = label_from(node.name).rpartition("/")
    with Inside(prefix=scope_from(head)):
        return gate(x, *settings, name=last or None)


def _stopped(node: Call, x: sg.Output) -> sg.Output:
    return gated(node, sg.stop_gradient, x)


def _prevented(node: Call, x: sg.Output) -> sg.Output:
    return gated(node, sg.prevent_gradient, x, str(node.attribute("message", "")))


@knows_all
def _called(node: Call, *args: object) -> tuple[Any, ...]:
    return tuple(node.call_known(node.attribute("f"), args))


STRUCTURAL: Table = {
    "NoOp": _nothing,
    "ControlTrigger": _nothing,
    "DisableCopyOnRead": _nothing,
    "Identity": _same,
    "IdentityN": _each,
    "Snapshot": _same,
    "DeepCopy": _same,
    "PlaceholderWithDefault": _same,
    "StopGradient": _stopped,
    "PreventGradient": _prevented,
    "PartitionedCall": _called,
    "StatefulPartitionedCall": _called,
}
