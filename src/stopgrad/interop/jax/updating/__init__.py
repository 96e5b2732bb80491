"""What the user's gradient function hands on, and what an update of their optimizer does: it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stopgrad.base.errors import ArgumentError, StopgradError
from stopgrad.flow.updates import Comparing, Step
from stopgrad.interop.jax.updating.modules import modules_in, restored
from stopgrad.interop.jax.updating.optimizer_steps import copied, stepping
from stopgrad.interop.jax.updating.user_gradients import Differentiated, Training, differentiated
from stopgrad.interop.shared import keras
from stopgrad.interop.shared.unseen import unseen
from stopgrad.interop.value_worlds import referenced

__all__ = ["Training", "Updated", "updated"]


class Updated(NamedTuple):
    """What was found out by one update.

    Attributes:
        loss: the function, without auxiliary results.
        argnums: the arguments that are differentiated.
        steps: what was compared for each parameter, by its path.
    """

    loss: Callable[..., Any]
    argnums: list[int]
    steps: dict[str, Step]


def updated(
    what: str,
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    argnums: int | Sequence[int] | None,
    training: Training,
) -> Updated:
    """Take the gradient as the user does, and do an update with it; nothing of the user's is changed.

    Raises:
        ArgumentError: gradient function, optimizer and arguments do not fit together.
    """
    with _undone(f, args, kwargs, training):
        copied_args, copied_kwargs = _copies(args), _copies(dict(kwargs))
        derivative = differentiated(what, f, copied_args, copied_kwargs, argnums, training)
        comparing, raw = _compared(what, copied_args, copied_kwargs, derivative, training)
    return Updated(derivative.loss, derivative.argnums, comparing.found(raw))


@contextlib.contextmanager
def _undone(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], training: Training
) -> Iterator[None]:
    """What is done in here has no effect on modules, random states and what is printed."""
    reads = [value for _, value in referenced(f)] if callable(f) else []
    scope = contextlib.nullcontext() if keras.loaded("jax") is None else keras.scope()
    with unseen(), restored([args, dict(kwargs), training.optimizer, reads]), scope:
        yield


def _copies(tree: tuple[Any, ...] | dict[str, Any]) -> Any:
    """A structure with copies of its arrays; one with modules, which are shared, as it is."""
    return tree if modules_in(tree) else copied(tree)


def _compared(
    what: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    derivative: Differentiated,
    training: Training,
) -> tuple[Comparing, set[str]]:
    """The parameters before and after updates; and those whose gradient is passed on as it is."""
    before = _numbers(derivative.values([args[n] for n in derivative.argnums]))
    comparing = Comparing(before, _numbers(derivative.handed))
    if training.optimizer is None:
        return comparing, set()
    try:
        update = stepping(what, training.optimizer, args, kwargs, derivative)
        while not comparing.is_settled:
            comparing.take(_numbers(derivative.values(update.step())))
    except StopgradError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        raise ArgumentError(
            f"{what}: an update of the optimizer failed ({reason}); give (tx, state) with the state that "
            "belongs to these parameters, and with grad= the gradient function that it is used with"
        ) from error
    return comparing, update.raw


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of arrays that can be read here, as NumPy's."""
    return {
        name: np.asarray(x.astype(jnp.float32) if getattr(x, "dtype", None) == jnp.bfloat16 else x)
        for name, x in values.items()
        if not isinstance(x, jax.Array) or x.is_fully_addressable
    }
