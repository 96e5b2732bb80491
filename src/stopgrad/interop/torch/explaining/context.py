"""What is known where an error was raised."""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from stopgrad.base.source import Location, RawLocation, decode
from stopgrad.flow.problems.problem import Site
from stopgrad.flow.problems.source_names import variable_at
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.recording.autograd_nodes import node_of
from stopgrad.interop.torch.recording.call_tensors import tensors_in
from stopgrad.interop.torch.recording.places import user_frame
from stopgrad.interop.torch.recording.record import Kind, Value
from stopgrad.interop.torch.recording.recorder import Recorder
from stopgrad.interop.torch.recording.used import parameters_of

Tensor = torch.Tensor
UNRECORDED = "this step was not recorded: stopgrad run --every 1 names the lines"
"""What helps where a step that was not recorded raised an error."""
MOST = 200_000
"""The most nodes of autograd's that are looked at."""


class Context(NamedTuple):
    """An error, and what a recorder knows.

    Attributes:
        recorder: recorded what led to it.
        error: the error.
        place: the line of the call that raised it, if that was one of PyTorch's functions.
        args: the arguments of that call.
    """

    recorder: Recorder
    error: BaseException
    place: RawLocation | None
    args: Sequence[Any]

    @property
    def message(self) -> str:
        """What PyTorch says."""
        return str(self.error)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return [x for arg in self.args for x in tensors_in(arg)]

    def roots(self) -> list[Any]:
        """The nodes of the tensors in the first argument, where a backward pass begins."""
        losses = tensors_in(self.args[0]) if self.args else ()
        return [node for tensor in losses if (node := node_of(tensor)) is not None]

    def nodes(self) -> Iterator[Any]:
        """The nodes of a backward pass, in the order in which it runs them."""
        return iter(reachable(self.roots()))

    def here(self, role: str, text: str) -> list[Site]:
        """The line that raised it: the user's last one, where no call of PyTorch's was recorded."""
        return sites(role, text, self.place or _last_place(self.error))

    @property
    def is_raised_by_the_user(self) -> bool:
        """Whether a ``raise`` of the user's own raised it, whatever its message says."""
        last = self.error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if last is None or user_frame(last.tb_frame) is not last.tb_frame:
            return False
        return dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] == "RAISE_VARARGS"

    @property
    def is_recorded(self) -> bool:
        """Whether the call that raised it was recorded."""
        return self.place is not None

    def name_of(self, tensor: Tensor) -> str:
        """The name of a parameter or buffer in the modules that were called; else of the value; or empty."""
        observer = self.recorder.observer
        observed_name = "" if observer is None else observer.name_of(tensor)
        if observed_name:
            return observed_name
        for name, other in self.recorder.seen().items():
            if other is tensor and not name.startswith("leaf"):
                return name
        for module in self.recorder.modules:
            for name, other in (*parameters_of(module), *module.named_buffers()):
                if other is tensor:
                    return f"{type(module).__name__}.{name}"
        noted = self.recorder.memory.held(tensor)
        node = node_of(tensor)
        value = self.recorder.nodes.value_at(node, tensor.output_nr) if node is not None else None
        value = value or (None if noted is None else noted.root or noted.value)
        return "" if value is None else variable_of(value)


def reachable(roots: Sequence[Any]) -> list[Any]:
    """The nodes that a backward pass from some runs, those made last first."""
    seen = dict.fromkeys(roots)
    stack = list(seen)
    while stack and len(seen) < MOST:
        for node, _ in stack.pop().next_functions:
            if node is not None and node not in seen:
                seen[node] = None
                stack.append(node)
    return sorted(seen, key=lambda node: -internals.number_of(node))


def _last_place(error: BaseException) -> RawLocation | None:
    """The user's last line in the traceback of an error."""
    place, traceback = None, error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if user_frame(traceback.tb_frame) is traceback.tb_frame:
            place = code, traceback.tb_lasti
        traceback = traceback.tb_next
    return place


def located(place: RawLocation | None) -> Location | None:
    """The user's own line at a place."""
    return None if place is None else decode(place).own


def sites(role: str, text: str, place: RawLocation | None) -> list[Site]:
    """The line at a place with its part in a finding; none where it is not known."""
    location = located(place)
    return [] if location is None else [Site(role, text, location)]


def variable_of(value: Value) -> str:
    """The variable to which a value was assigned; empty if its line assigns it to none."""
    if value.event.kind is Kind.OPERATION or value.event.kind is Kind.LEAF:
        return variable_at(located(value.event.place), value.index)
    return ""
