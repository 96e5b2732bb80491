"""Updates by an optimizer of Keras, after which its variables and those that it moved are as they were."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.updates import Comparing, Step
from stopgrad.graph.operands import NumpyArray
from stopgrad.interop.shared import keras
from stopgrad.interop.shared.unseen import unseen


def optimizer_in(x: object) -> Any:
    """An optimizer of Keras, or that of a compiled model; None for anything else."""
    if keras.is_optimizer(x):
        return x
    return getattr(x, "optimizer", None) if keras.is_model(x) else None


def steps_of(
    what: str, optimizer: object, xs: Mapping[str, Any], gradients: Mapping[str, Any]
) -> dict[str, Step]:
    """What updates do to variables of Keras, by their names.

    Args:
        what: the caller, for errors.
        optimizer: of Keras.
        xs: the variables asked about, by name.
        gradients: those that arrive, by the same names; None or missing for others.

    Raises:
        ArgumentError: an update fails.
    """
    ops = keras.loaded().ops
    names = {id(v): name for name, v in xs.items()}
    held_ids = {id(keras.plain(v)) for v in keras.held_by(optimizer)}
    held = [v for v in xs.values() if id(keras.plain(v)) in held_ids]
    trained = held or [v for v in xs.values() if v.trainable]
    arrived = {name: g for name, g in gradients.items() if g is not None}
    ids = {id(v) for v in trained}

    def values() -> dict[str, Any]:
        return {name: _array(ops, v) for name, v in xs.items() if _is_real(v)}

    handed = {name: _array(ops, arrived[name]) for name, v in xs.items() if name in arrived and id(v) in ids}
    why = {name: "the optimizer does not have it" for name, v in xs.items() if id(v) not in ids}
    comparing = Comparing(values(), handed, why)
    in_order = [arrived.get(names[id(v)]) for v in trained]
    if all(g is None for g in in_order):
        comparing.steps = 1  # Keras refuses to do an update without any gradient: nothing moves.
        return comparing.found()
    try:
        with unseen(), warnings.catch_warnings(), _restoring(optimizer, xs.values()) as same:
            warnings.simplefilter("ignore")
            while not comparing.is_settled:
                same.apply(list(in_order), list(trained))
                comparing.take(values())
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        raise ArgumentError(f"{what}: an update of the optimizer failed ({message})") from error
    return comparing.found()


def _is_real(v: Any) -> bool:
    return "float" in str(v.dtype)


def _array(ops: Any, g: Any) -> NumpyArray:
    """A value as an array; of a gradient of slices, such as an embedding has, their values."""
    value = g.value if keras.is_variable(g) else g.values if hasattr(g, "dense_shape") else g
    with warnings.catch_warnings():  # Of NumPy about TensorFlow's arrays.
        warnings.simplefilter("ignore")
        return ops.convert_to_numpy(ops.convert_to_tensor(value)).copy()


@contextlib.contextmanager
def _restoring(optimizer: Any, variables: Any) -> Iterator[Any]:
    """An optimizer that does what another does; its variables and these are as they were afterwards.

    One that was never used is not built: then it is one made from its configuration.
    """
    ops = keras.loaded().ops
    same = optimizer if optimizer.built else _twin(optimizer)
    changed: Sequence[Any] = [*variables, *(optimizer.variables if same is optimizer else ())]
    before = [(v, _array(ops, v)) for v in changed]
    try:
        yield same
    finally:
        for v, value in before:
            v.assign(value)


def _twin(optimizer: Any) -> Any:
    twin = type(optimizer).from_config(optimizer.get_config())
    for name, value in vars(optimizer).items():
        if name.startswith("_exclude_from_weight_decay"):
            setattr(twin, name, value)
    return twin
