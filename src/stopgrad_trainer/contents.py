"""Reads the manifest of a training folder, with care."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stopgrad_trainer.exported import Array, open_plain
from stopgrad_trainer.needed import error, is_ours, module

AnyPath = str | os.PathLike[str]

FORMAT = "stopgrad.training"
VERSION = 1
"""The version of the manifest's schema. Additions to it do not change the number."""


LONGEST = 1 << 26
"""The most bytes of a manifest."""

WEIGHTS = "weights.bin"
"""The file of frozen weights, where they are large."""

GRAPHS = ("train_step", "gradients", "eval", "predict", "merge")
HELD = ("parameter", "state")
"""The roles of inputs that the trainer holds; others are fed."""


@dataclass(frozen=True)
class Port:
    """An input or output of a graph, as the manifest describes it."""

    name: str
    role: str
    dtype: str
    shape: tuple[int | str, ...]
    updates: str
    of: str
    over: bool = False


@dataclass(frozen=True)
class Function:
    """A function of each element, and the tensors that it renews.

    Attributes:
        graph: its name.
        members: the names of tensors by those of its inputs, for each group of tensors.
    """

    graph: str
    members: list[dict[str, str]]


@dataclass(frozen=True)
class Update:
    """A step in three parts, of which only the last changes the state.

    Attributes:
        backward: the graph of the loss, the gradients, and what the model itself renews.
        scalars: the graph of the scalars that the functions share.
        functions: which renew the other tensors, each by itself, in any pieces.
    """

    backward: str
    scalars: str
    functions: list[Function]


@dataclass(frozen=True)
class Contents:
    """A training folder.

    Attributes:
        folder: its path.
        manifest: the contents of the manifest.
        inputs, outputs: of the graphs, by the name of the graph.
        files: of the graphs.
        state: the tensors carried from step to step, by name.
        state_file: the file with their initial values.
        update: how a step can be made in place; None if it cannot, or the folder is of an earlier version.
    """

    folder: Path
    manifest: Mapping[str, Any]
    inputs: dict[str, list[Port]]
    outputs: dict[str, list[Port]]
    files: dict[str, Path]
    state: dict[str, Port]
    state_file: Path
    update: Update | None = None


def contents(folder: AnyPath) -> Contents:
    """Read a training folder's manifest.

    Raises:
        MissingFileError: there is none.
        FileError: it is damaged, or of a later version.
    """
    try:
        home = Path(folder)
    except TypeError:
        raise error("ArgumentError", f"{folder!r:.60} is no path of a folder") from None
    path = home / "manifest.json"
    try:
        with open_plain(path) as file:
            manifest = json.loads(file.read(LONGEST))
        strange = [entry.name for entry in os.scandir(home) if not _is_usual(entry)]
    except FileNotFoundError:
        raise error(
            "MissingFileError",
            f"{home} is no training folder: it has no manifest.json; sgo.training writes one",
        ) from None
    except (OSError, ValueError, RecursionError) as caught:
        if is_ours(caught):
            raise
        raise error("FileError", f"{path} cannot be read: {caught}") from caught
    if strange:
        raise error("FileError", f"{home} holds {strange[0]!r:.80}, on which a reader could wait for ever")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise error("FileError", f"{path} is no manifest of a training folder")
    if manifest.get("version") != VERSION:
        raise error(
            "FileError",
            f"{path} is of version {manifest.get('version')}, and version {VERSION} is read here: install a "
            "newer stopgrad",
        )
    try:
        return _contents(home, manifest)
    except (KeyError, TypeError, AttributeError, ValueError) as caught:
        raise error("FileError", f"{path} is damaged: {type(caught).__name__}: {caught}") from caught


def _is_usual(entry: os.DirEntry[str]) -> bool:
    """Whether something in a folder is a file, a folder or a link, and no pipe, socket or device."""
    return entry.is_symlink() or entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def _contents(home: Path, manifest: dict[str, Any]) -> Contents:
    graphs = manifest["graphs"]
    lacking = [name for name in GRAPHS if name not in graphs]
    if lacking:
        raise ValueError(f"there is no graph {lacking[0]}")
    inputs = {name: [_port(x) for x in graph["inputs"]] for name, graph in graphs.items()}
    outputs = {name: [_port(y) for y in graph["outputs"]] for name, graph in graphs.items()}
    carried = [port for port in inputs["train_step"] if port.role in HELD]
    unknown = next((port for port in carried if not all(isinstance(size, int) for size in port.shape)), None)
    if unknown is not None:
        raise ValueError(f"{unknown.name} has the shape {show_shape(unknown.shape)}")
    _check(inputs, outputs, {port.name for port in carried})
    _rate(manifest["learning_rate"])
    for key in ("loss", "optimizer"):
        str(manifest[key]["name"])
    state = {port.name: port for port in carried}
    return Contents(
        home,
        manifest,
        inputs,
        outputs,
        {name: home / _plain(graph["file"]) for name, graph in graphs.items()},
        state,
        home / _plain(manifest["state_file"]),
        _update(manifest["update"], inputs, outputs, state) if "update" in manifest else None,
    )


def _update(
    entry: Mapping[str, Any],
    inputs: Mapping[str, list[Port]],
    outputs: Mapping[str, list[Port]],
    state: Mapping[str, Port],
) -> Update:
    """The parts of a step, which fit each other and the state."""
    functions = [_function(function) for function in entry["functions"]]
    update = Update(str(entry["backward"]), str(entry["scalars"]), functions)
    renewed = [port.updates for name in (update.backward, update.scalars) for port in outputs[name]]
    gradients = {port.of: port for port in outputs[update.backward] if port.role == "gradient"}
    for function in functions:
        _check_function(function, inputs[function.graph], outputs[function.graph], state, gradients)
        written = [port.updates for port in outputs[function.graph]]
        renewed += [members[port] for members in function.members for port in written]
    if sorted(filter(None, renewed)) != sorted(state):
        raise ValueError("the parts of a step do not renew the state")
    if sum(port.role == "loss" for port in outputs[update.backward]) != 1:
        raise ValueError(f"{update.backward} has not one loss")
    step_feeds = {port.name for port in inputs["train_step"] if port.role not in HELD}
    for name in (update.backward, update.scalars):
        _check_part(name, inputs[name], outputs[name], state, step_feeds)
    scalars = {port.name for port in outputs[update.scalars]}
    for name in (update.backward, update.scalars):
        strange = [x.name for x in inputs[name] if x.role in HELD and x.name not in state]
        strange += [x.of for x in inputs[name] if x.role == "gradient" and x.of not in gradients]
        if strange:
            raise ValueError(f"{name} takes {strange[0]!r}, which there is not")
    for function in functions:
        if any(x.role == "scalar" and x.name not in scalars for x in inputs[function.graph]):
            raise ValueError(f"{function.graph} takes a scalar which there is not")
    return update


def _function(entry: Mapping[str, Any]) -> Function:
    members = [{str(port): str(tensor) for port, tensor in tensors.items()} for tensors in entry["members"]]
    return Function(str(entry["graph"]), members)


def _check_part(
    name: str, inputs: list[Port], outputs: list[Port], state: Mapping[str, Port], step_feeds: set[str]
) -> None:
    """Refuse a part of a step that is fed what a step is not, or returns what nothing takes."""
    strange = [x.name for x in inputs if x.role not in (*HELD, "gradient") and x.name not in step_feeds]
    for port in outputs:
        tensor = state.get(port.updates or port.of)
        if tensor is not None:
            fits = (tensor.shape, tensor.dtype) == (port.shape, port.dtype)
        else:
            fits = not port.updates and port.role in ("loss", "scalar") and not port.shape
        strange += [] if fits else [port.name]
    if strange:
        raise ValueError(f"{name}: {strange[0]!r:.80} does not fit a step")


def _check_function(
    function: Function,
    inputs: list[Port],
    outputs: list[Port],
    state: Mapping[str, Port],
    gradients: Mapping[str, Port],
) -> None:
    """Refuse a function that does not fit its tensors."""
    arrays = {port.name: port for port in inputs if port.role != "scalar"}
    if not arrays or sorted(port.updates for port in outputs) != sorted(
        name for name, port in arrays.items() if port.role in HELD
    ):
        raise ValueError(f"{function.graph} does not renew what it reads")
    for members in function.members:
        if members.keys() != arrays.keys():
            raise ValueError(f"{function.graph} is not given what it takes")
        tensors = [
            (gradients if port.role == "gradient" else state)[members[name]] for name, port in arrays.items()
        ]
        if any(tensor.dtype != port.dtype for tensor, port in zip(tensors, arrays.values(), strict=True)):
            raise ValueError(f"{function.graph} takes other dtypes than {members} have")
        if len({tensor.shape for tensor in tensors}) != 1:
            raise ValueError(f"{function.graph} is given tensors of several shapes: {members}")


def _check(inputs: dict[str, list[Port]], outputs: dict[str, list[Port]], state: set[str]) -> None:
    """Refuse graphs that do not fit each other."""
    if sorted(port.updates for port in outputs["train_step"] if port.updates) != sorted(state):
        raise ValueError("a step does not renew what it reads")
    empty = next((name for name in GRAPHS if not outputs[name]), None)
    if empty is not None:  # Asked for nothing, the runtime returns everything.
        raise ValueError(f"{empty} has no outputs")
    for name in ("train_step", "gradients", "eval"):
        if sum(port.role == "loss" for port in outputs[name]) != 1:
            raise ValueError(f"{name} has not one loss")
    available = dict.fromkeys(GRAPHS, state) | {"predict": {port.of for port in outputs["merge"]}}
    for name in GRAPHS:
        strange = [x.name for x in inputs[name] if x.role in HELD and x.name not in available[name]]
        if strange:
            raise ValueError(f"{name} takes {strange[0]!r}, which there is not")


def _rate(rate: Mapping[str, Any]) -> None:
    if "schedule" not in rate:
        float(rate["default"])


def _port(entry: Mapping[str, Any]) -> Port:
    dtype_of(entry["dtype"])
    shape = tuple(size if isinstance(size, int) else str(size) for size in entry["shape"])
    more = {key: str(entry.get(key, "")) for key in ("updates", "of")}
    over = entry.get("over", False) is True
    return Port(str(entry["name"]), str(entry["role"]), str(entry["dtype"]), shape, **more, over=over)


_DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
_DTYPES += ("float16", "float32", "float64")


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name.

    Raises:
        ValueError: there is none.
    """
    if name == "bfloat16":
        return np.dtype(module("ml_dtypes", "bfloat16", "").bfloat16)
    if name not in _DTYPES:
        raise ValueError(f"there is no dtype {name!r}")
    return np.dtype(name)


def show_shape(shape: Iterable[Any]) -> str:
    """A shape as messages print it."""
    return f"[{', '.join(map(str, shape))}]"


def _plain(name: str) -> str:
    if Path(name).name != name:
        raise ValueError(f"{name!r} is no file of the folder")
    return name


# ---------------------------------------------------------------------------------------------- feeds


def fed(what: str, ports: list[Port], values: Mapping[str, Any]) -> dict[str, Array]:
    """The values to feed, as arrays of the dtypes and shapes that a graph takes.

    Args:
        what: the caller, for errors.
        ports: the inputs.
        values: arrays, numbers or lists, by name.

    Raises:
        ArgumentError: an input is missing, or there is no such input.
        DTypeError, ShapeError: an array has the wrong dtype or shape.
    """
    names = [port.name for port in ports]
    unknown = next((name for name in values if name not in names), None)
    if unknown is not None:
        raise error(
            "ArgumentError", f"{what}: there is no input {unknown!r}; it takes {', '.join(names) or 'none'}"
        )
    missing = [name for name in names if name not in values]
    if missing:
        raise error("ArgumentError", f"{what}: {', '.join(missing)} is missing; it takes {', '.join(names)}")
    sizes: dict[str, tuple[int, str]] = {}
    return {port.name: _fitting(what, port, values[port.name], sizes) for port in ports}


def _fitting(what: str, port: Port, value: object, sizes: dict[str, tuple[int, str]]) -> Array:
    dtype = dtype_of(port.dtype)
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype != dtype:
            raise error(
                "DTypeError",
                f"{what}: {port.name} is {port.dtype}, not {array.dtype}; "
                f"convert it with .astype({port.dtype!r})",
            )
    else:
        try:
            array = np.asarray(value, dtype)
        except (TypeError, ValueError, OverflowError) as caught:
            raise error(
                "DTypeError", f"{what}: {port.name} is {port.dtype}{show_shape(port.shape)}: {caught}"
            ) from None
    if array.ndim != len(port.shape):
        raise error(
            "ShapeError",
            f"{what}: {port.name} has the shape {show_shape(port.shape)}, not {show_shape(array.shape)}",
        )
    for size, actual in zip(port.shape, array.shape, strict=True):
        expected, whose = (size, "") if isinstance(size, int) else sizes.get(size, (actual, ""))
        if actual != expected:
            hint = f", and {size} is {expected} in {whose}" if whose else ""
            raise error(
                "ShapeError",
                f"{what}: {port.name} has the shape {show_shape(port.shape)}, "
                f"not {show_shape(array.shape)}{hint}",
            )
        if isinstance(size, str) and re.fullmatch(r"\w+", size):
            sizes.setdefault(size, (actual, port.name))
    return np.ascontiguousarray(array) if array.ndim else array


# -------------------------------------------------------------------------------------------- results


def check_results(path: Path, outputs: list[Port], results: Sequence[object]) -> None:
    """Refuse results of a graph that are not what the manifest says.

    Args:
        path: the file of the graph, for errors.
        outputs: what it returns, as the manifest describes it.
        results: in the same order.

    Raises:
        GraphError: a result has another dtype or shape, or is no array.
    """
    for port, result in zip(outputs, results, strict=True):
        if not isinstance(result, np.ndarray):
            actual = f"a {type(result).__name__}"
        elif result.dtype == dtype_of(port.dtype) and _is_allowed(result.shape, port.shape):
            continue
        else:
            actual = f"{result.dtype}{show_shape(result.shape)}"
        raise error(
            "GraphError",
            f"{path} is not the graph of the manifest: {port.name} is {actual}, "
            f"not {port.dtype}{show_shape(port.shape)}",
        )


def _is_allowed(actual: tuple[int, ...], declared: tuple[int | str, ...]) -> bool:
    """Whether a shape is one that the manifest allows; named sizes may be any."""
    return len(actual) == len(declared) and all(
        isinstance(size, str) or size == length for length, size in zip(actual, declared, strict=True)
    )
