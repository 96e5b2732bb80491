"""How translators of files hold values, name operations, and note what cannot be translated."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.errors import ArgumentError, FileError, GraphError
from stopgrad.base.source import Location
from stopgrad.base.types import DType, Size
from stopgrad.graph.build import emit
from stopgrad.graph.builder import Inside, default_graph
from stopgrad.graph.interpreter import constant_value
from stopgrad.graph.op import REGISTRY
from stopgrad.graph.operands import Literal, shorten
from stopgrad.interop.shared.calling import Known
from stopgrad.interop.shared.conversions import Refused
from stopgrad.interop.shared.folding import LARGEST
from stopgrad.ops.structural.sources import Parameter

RANDOM = "random_key"
"""The parameter that random numbers are drawn from."""

INVALID = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)
"""Errors that rules raise if a node is not as its operator requires."""

FAILED = object()
"""Stands for the results of a refused node."""


class Refusal:
    """A node that cannot be translated, and why."""

    what: str
    why: str

    def __init__(self, what: str, why: str) -> None:
        self.what, self.why = what, why

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


def raise_for(refusals: Iterable[Refusal], name: str) -> None:
    """Raise an error that names all nodes that cannot be translated, if there are any."""
    lines = list(dict.fromkeys(map(str, refusals)))
    if lines:
        count = "1 node" if len(lines) == 1 else f"{len(lines)} nodes"
        raise GraphError(f"{count} of {name} cannot be translated:\n  " + "\n  ".join(lines))


class Building:
    """What translators have in common: values that are outputs or known, refusals, random keys.

    Attributes:
        refusals: what has no translation, in the order of the file.
        drawn: how many random keys were asked for.
        random_key: the parameter from which they are made; None if there is none.
    """

    drawn: int

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self.drawn = 0
        self.random_key: sg.Output | None = None

    def attempted(self, what: str, compute: Callable[[], Sequence[Any]]) -> Any:
        """What *compute* returns for a node; ``FAILED``, and a refusal, if the node cannot be translated."""
        try:
            return compute()
        except FileError:
            raise
        except (Refused, sg.StopgradError) as error:
            self.refusals.append(Refusal(what, getattr(error, "message", None) or str(error)))
        except INVALID as error:
            why = f"the node cannot be read ({type(error).__name__}: {error})"
            self.refusals.append(Refusal(what, why))
        return FAILED

    @contextmanager
    def trying(self) -> Iterator[None]:
        """A context in which refusals are forgotten; the caller tells them."""
        before = len(self.refusals)
        try:
            yield
        finally:
            del self.refusals[before:]

    def new_key(self) -> sg.Output:
        """A random key that no other node has."""
        if self.random_key is None:
            raise Refused("it draws random numbers, and this model has no key for them")
        self.drawn += 1
        return sg.random_fold_in(self.random_key, self.drawn)

    def known(self, x: object) -> Known | None:
        """A value, if it is known while the graph is built: stored, folded, or computed from constants."""
        if not isinstance(x, sg.Output):
            return x if isinstance(x, Known) else None
        if any(not isinstance(size, int) for size in x.shape) or math.prod(x.shape) > LARGEST:
            return None
        value = constant_value(x)
        return None if value is None else Known(value)

    def tensor(self, x: object) -> Any:
        """A value as an output of the graph being built; None stays None."""
        if isinstance(x, (list, tuple)):
            return [self.tensor(y) for y in x]
        if not isinstance(x, Known):
            return x
        if x.output is not None and (x.initializer or _is_here(x.output)):
            return x.output
        if x.dtype is None:
            raise Refused(f"there is no element type {x.array.dtype} here; convert to another one before")
        if x.is_symbolic:
            x.output = self._sizes(x)
        else:
            x.output = sg.constant(x.array, x.dtype)
        return x.output

    def _sizes(self, x: Known) -> sg.Output:
        parts = [_size(size, x.dtype) for size in x.array.reshape(-1).tolist()]
        return parts[0] if not x.ndim else sg.reshape(sg.stack(parts), x.shape)


def _size(size: Size, dtype: DType | None) -> sg.Output:
    """A size as a scalar."""
    if isinstance(size, sg.Dim):
        return emit(REGISTRY["Size"], (), (size, dtype), "", default_graph()).outputs[0]
    return sg.constant(size, dtype)


def _is_here(x: sg.Output) -> bool:
    """Whether an output belongs to the graph being built, and is still in it."""
    graph = default_graph()
    return x.op.graph is graph and graph.holds(x.op)


def scope_from(name: str) -> str:
    """A name of a model as a scope: a prefix of names."""
    parts = [label_from(part) for part in name.split("/")]
    return "".join([f"{part}/" for part in parts if part])


def label_from(name: str) -> str:
    """A name of a model with only the characters that our names allow."""
    return re.sub(r"[^A-Za-z0-9_.\\>/-]", "_", name).lstrip("_->\\/").rstrip("/")


def stored_parameter(array: np.generic | np.ndarray[Any, Any], name: str, file: str, what: str) -> Known:
    """A parameter that a file stores, as a known value; *what* it is there, reports show as its line."""
    head, _, last = label_from(name).rpartition("/")
    with Inside(prefix=scope_from(head), place=(Location(file, 0, source=f"{what} {name!r}"), 0)):
        value = Literal(_own(array))
        parameter = emit(Parameter, (), (value, ()), last or "parameter").outputs[0]
    return Known(value.array, initializer=name, output=parameter)


def _own(array: np.generic | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that nobody else has and nobody changes: itself if it was made for us."""
    own = np.asarray(array)
    own = own if own.flags.owndata else np.array(own)
    own.flags.writeable = False
    return own


def leaves_by_name(
    called: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """The values of a model's inputs, which are given in order or by name."""
    if len(args) > len(names):
        raise ArgumentError(f"{called} takes {len(names)} inputs, {shorten(names)}, not {len(args)}")
    leaves = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names or name in leaves:
            how = "is given twice" if name in leaves else f"is no input; it has {shorten(names)}"
            raise ArgumentError(f"{called}: {name!r} {how}")
        leaves[name] = value
    missing = [name for name in names if name not in leaves]
    if missing:
        raise ArgumentError(f"{called} takes {shorten(names)}; {missing[0]!r} is missing")
    return [leaves[name] for name in names]
