"""Names with options, such as ``huber:delta=0.5``, for command lines and manifests."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stopgrad.base.errors import ArgumentError

Value = bool | int | float | str

R = TypeVar("R")


@dataclass(frozen=True)
class Spec:
    """A name and its options.

    Attributes:
        name: of a loss, an optimiser or a schedule.
        options: by their names.
        values: options without a name, in their order.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[Any, ...] = ()


def spec_of(text: str, what: str) -> Spec:
    """Parse a name with options.

    Args:
        text: a name; after a colon, options separated by commas: first values in order, then
            ``option=value``, where an option may have several values.
        what: the kind of thing named, for errors.

    Raises:
        ArgumentError: it has another form.

    Examples:
        >>> spec_of("huber:delta=0.5", "loss").options
        {'delta': 0.5}
        >>> spec_of("adam:1e-3,betas=0.9,0.95", "optimizer")
        Spec(name='adam', options={'betas': (0.9, 0.95)}, values=(0.001,))
    """
    name, _, rest = text.partition(":")
    values: list[Value] = []
    options: dict[str, list[Value]] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            (next(reversed(options.values())) if options else values).append(_value(part))
        elif not key or not value:
            raise ArgumentError(f"{what} {text!r}: {part!r} is no option; write {name}:option=value")
        else:
            options[key.replace("-", "_")] = [_value(value)]
    by_name = {key: many[0] if len(many) == 1 else tuple(many) for key, many in options.items()}
    return Spec(name.strip(), by_name, tuple(values))


def _value(text: str) -> Value:
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def function_of(
    spec: Spec,
    table: Mapping[str, Callable[..., R]],
    what: str,
    own: Sequence[str] = ("judged",),
    more: Sequence[str] = (),
) -> tuple[Callable[..., R], dict[str, Any]]:
    """The function of a name in a table, and its options by name.

    Args:
        spec: the name and the options.
        table: of functions.
        what: the kind of functions, for errors.
        own: the arguments that are no options.
        more: options that are no arguments.

    Raises:
        ArgumentError: there is no such name or option, or an option is missing.
    """
    name = spec.name.replace("_", "-").lower()
    if name not in table:
        near = difflib.get_close_matches(name, table, 1)
        cure = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(table)}"
        raise ArgumentError(f"there is no {what} {spec.name!r}; {cure}")
    parameters = {
        key: parameter
        for key, parameter in inspect.signature(table[name]).parameters.items()
        if key not in own and parameter.kind is not parameter.VAR_KEYWORD
    }
    accepted = [*parameters, *more]
    cure = f"it has {', '.join(accepted)}" if accepted else "it has none"
    if len(spec.values) > len(parameters):
        raise ArgumentError(f"the {what} {name} has not so many options; {cure}")
    options = dict(zip(parameters, spec.values, strict=False))
    wrong = next((key for key in spec.options if key not in accepted or key in options), None)
    if wrong is not None:
        problem = "is given twice" if wrong in options else "does not exist"
        raise ArgumentError(f"the {what} {name}: the option {wrong!r} {problem}; {cure}")
    options |= spec.options
    lacking = next(
        (
            key
            for key, parameter in parameters.items()
            if parameter.default is parameter.empty and key not in options
        ),
        None,
    )
    if lacking is not None:
        raise ArgumentError(f"the {what} {name} needs the option {lacking!r}; write {name}:{lacking}=...")
    return table[name], options
