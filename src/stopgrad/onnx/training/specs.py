"""What is chosen by name, with options: ``huber:delta=0.5``, as a command line and a manifest say it."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stopgrad.errors import ArgumentError

Value = bool | int | float | str


@dataclass(frozen=True)
class Spec:
    """A name and its options.

    Attributes:
        name: of a loss, an optimiser or a schedule.
        options: by their names.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = ",".join(f"{key}={_shown(value)}" for key, value in self.options.items())
        return f"{self.name}:{shown}" if shown else self.name


def spec_of(text: str, what: str) -> Spec:
    """What a text says.

    Args:
        text: a name; after a colon, options separated by commas. Values of one option may be several.
        what: whose it is, as an error says it.

    Raises:
        ArgumentError: it has another form.

    Examples:
        >>> spec_of("huber:delta=0.5", "loss")
        Spec(name='huber', options={'delta': 0.5})
    >>> spec_of("adam:betas=0.9,0.95,eps=1e-6", "optimizer").options
    {'betas': (0.9, 0.95), 'eps': 1e-06}
    """
    name, _, rest = text.partition(":")
    options: dict[str, list[Value]] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals and options:
            next(reversed(options.values())).append(_value(part))
        elif not equals or not key or not value:
            raise ArgumentError(f"{what} {text!r}: {part!r} is no option; write {name}:option=value")
        else:
            options[key.replace("-", "_")] = [_value(value)]
    known = {key: values[0] if len(values) == 1 else tuple(values) for key, values in options.items()}
    return Spec(name.strip(), known)


def _shown(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


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


def found(
    spec: Spec, table: Mapping[str, Callable[..., Any]], what: str, own: tuple[str, ...] = ("judged",)
) -> Callable[..., Any]:
    """What a table has for a name, which must take the options.

    Args:
        spec: the name and the options.
        table: of functions.
        what: they are, as an error says it.
        own: which of their arguments are no options.

    Raises:
        ArgumentError: there is none of this name, or it has no such option.
    """
    name = spec.name.replace("_", "-").lower()
    if name not in table:
        near = difflib.get_close_matches(name, table, 1)
        cure = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(table)}"
        raise ArgumentError(f"there is no {what} {spec.name!r}; {cure}")
    known = [key for key in inspect.signature(table[name]).parameters if key not in own]
    wrong = next((key for key in spec.options if key not in known), None)
    if wrong is not None:
        cure = f"it has {', '.join(known)}" if known else "it has none"
        raise ArgumentError(f"the {what} {name} has no option {wrong!r}; {cure}")
    return table[name]
