"""Checks that the variables for which some code asks for gradients get them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stopgrad.base.source import Location
from stopgrad.flow.flow_report import Flow
from stopgrad.interop.shared.trained import Group, Trained
from stopgrad.interop.tensorflow.recording.graphs import Subject
from stopgrad.interop.tensorflow.watching import GradientCall, Watch, explained, free_name


class Training:
    """A watch that keeps the gradients that were asked for, to ask about them when the code has ended.

    Args:
        named: models by name; TensorFlow and Keras name their variables themselves.
        leaves: as in other worlds; what is no variable is never checked.
    """

    seen: Watch

    def __init__(self, named: Mapping[str, Any] | None = None, leaves: bool = False) -> None:
        self.seen = Watch()

    def __enter__(self) -> Training:
        self.seen.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.seen.__exit__(*error)

    def trained(self) -> Trained:
        """The gradients that were asked for, and the trainable variables among their sources."""
        parameters: dict[str, Any] = {}
        names: dict[int, str] = {}
        calls = []
        for asking in self.seen._recorder.askings:
            subjects = {}
            for source in asking.sources:
                variable = source.variable
                if variable is not None and not source.held:
                    if id(variable) not in names:
                        names[id(variable)] = free_name(parameters, source.name)
                        parameters[names[id(variable)]] = variable
                    subjects[names[id(variable)]] = Subject(source.value)
            if subjects:
                calls.append(_Call(self.seen, GradientCall(self.seen._recorder, asking), subjects))
        group = Group("the sources", tuple(parameters), True)
        return Trained("tape.gradient()", calls, parameters, [group])


class _Call(NamedTuple):
    """A gradient that was asked for, and its sources by the names that they have in all calls."""

    seen: Watch
    call: GradientCall
    subjects: Mapping[str, Subject]

    @property
    def location(self) -> Location | None:
        return self.call.location

    def explain(self, xs: Any) -> Flow:
        asking = self.call._asking
        recorder = self.seen._recorder
        return explained("explain", recorder, asking.losses, self.subjects, None, asking)
