"""Keras 3, as the worlds that it runs on ask about it: its models, their variables, and the loss of ``fit``.

Keras is never imported here: who has one of its models has imported it. Its own ``StatelessScope`` gives
variables values for a time and keeps what is assigned to them, so that a question changes no model.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from stopgrad.base.errors import ArgumentError

Optimizer: TypeAlias = Any
"""A Keras optimizer: which class that is, the installed Keras decides, and it may be imported by nobody."""

DEEPEST = 4
"""How many objects deep models are looked for in what a function holds."""
FEW = 1000
"""The most objects that are looked at for it."""


def loaded(backend: str = "") -> Any:
    """Keras, if it was imported and computes with this backend; else None."""
    keras = sys.modules.get("keras")
    if not all(hasattr(keras, name) for name in ("layers", "Variable", "StatelessScope", "config")):
        return None  # There is none, an older one, or one that is being imported.
    return keras if backend in ("", keras.config.backend()) else None  # type: ignore[union-attr]


def is_layer(x: object) -> bool:
    """Whether something is a layer or a model of Keras."""
    keras = loaded()
    return keras is not None and isinstance(x, keras.layers.Layer)


def is_model(x: object) -> bool:
    """Whether something is a model of Keras."""
    keras = loaded()
    return keras is not None and isinstance(x, keras.Model)


def is_variable(x: object) -> bool:
    """Whether something is a variable of Keras."""
    keras = loaded()
    return keras is not None and isinstance(x, keras.Variable)


def plain(x: object) -> Any:
    """The framework's own variable in one of Keras'; anything else as it is."""
    return getattr(x, "_value", x)


def held_by(optimizer: object) -> list[Any]:
    """The variables that an optimizer of Keras was built for; none before that."""
    return list(getattr(optimizer, "_trainable_variables", ()))


def is_optimizer(x: object) -> bool:
    """Whether something is an optimizer of Keras."""
    keras = loaded()
    return keras is not None and isinstance(x, keras.optimizers.Optimizer)


def parameters_of(layer: Any) -> list[Any]:
    """The variables of a layer that are made to be trained, also frozen ones; each once.

    A layer's averages and seeds were never meant to be: nothing is lost if no gradient arrives there.
    """
    parts = layer._flatten_layers()
    trainable = {
        id(v) for part in parts for v in getattr(part, "_trainable_variables", part.trainable_weights)
    }
    return [v for v in layer.weights if id(v) in trainable or v.trainable]


def by_path(variables: Iterable[Any]) -> dict[str, Any]:
    """Variables by their paths, such as ``"dense/kernel"``, each once; equal paths get a number."""
    named: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for v in {id(v): v for v in variables}.values():
        count = counts[v.path] = counts.get(v.path, 0) + 1
        named[v.path if count == 1 else f"{v.path}_{count}"] = v
    return named


# ------------------------------------------------------------------------------- what a function holds


def layers_in(*things: object) -> list[Any]:
    """The layers and models in arguments, in containers, and in the objects and functions that hold these.

    Of a function these are its closure, its defaults, what it is a method of, and the global variables that
    its code names. A layer is not looked into, as it has its own parts.
    """
    layers: dict[int, Any] = {}
    visited: dict[int, object] = {}
    level: Sequence[object] = things
    for _ in range(DEEPEST):
        below: list[object] = []
        for x in level:
            if id(x) in visited or len(visited) >= FEW:
                continue
            visited[id(x)] = x
            if is_layer(x):
                layers[id(x)] = x
            else:
                below += _parts_of(x)
        level = below
    return list(layers.values())


def _parts_of(x: object) -> list[object]:
    if isinstance(x, dict):
        return list(x.values())
    if isinstance(x, (list, tuple, set, frozenset)):
        return list(x)
    if isinstance(x, types.MethodType):
        return [x.__self__, x.__func__]
    if isinstance(x, functools.partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, (type, types.ModuleType)):
        return []
    own = getattr(x, "__dict__", None)
    held = list(own.values()) if isinstance(own, dict) else []
    return held + _held_by_function(x) if isinstance(x, types.FunctionType) else held


def _held_by_function(f: types.FunctionType) -> list[object]:
    held: list[object] = [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
    for cell in f.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # It is empty.
            continue
    codes = [f.__code__]
    while codes:
        one = codes.pop()
        held += [f.__globals__[name] for name in one.co_names if name in f.__globals__]
        codes += [const for const in one.co_consts if isinstance(const, types.CodeType)]
    return held


# --------------------------------------------------------------------------------------------- scopes


class Read:
    """The variables that code reads, in order."""

    def __init__(self) -> None:
        self.variables: dict[int, Any] = {}


def scope(values: Iterable[tuple[Any, Any]] = (), read: Read | None = None) -> AbstractContextManager[object]:
    """A context in which variables have given values, and assignments change nothing.

    Args:
        values: variables and their values; others have their own, or those of the scope around.
        read: takes note of these others when they are read.
    """
    base: Any = loaded().StatelessScope

    class Scope(base):  # type: ignore[misc]
        """Keras' own, which also gives the values of other variables, as code that asks it for them needs."""

        def get_current_value(self, variable: Any) -> object:
            value = super().get_current_value(variable)
            if value is not None:
                return value
            if read is not None:
                read.variables[id(variable)] = variable
            around = self.original_scope
            value = None if around is None else around.get_current_value(variable)
            return variable._value if value is None else value

    return Scope(list(values), collect_losses=True)


# ------------------------------------------------------------------------------------- the loss of fit


def fit_loss(what: str, model: Any) -> Callable[..., object]:
    """The loss that ``model.fit`` differentiates: a function of the model, ``x``, ``y``, weights of samples.

    It is to be called inside of :func:`scope`, so that the model stays as it was.

    Args:
        what: the caller, for errors.
        model: a compiled model.

    Raises:
        ArgumentError: the model is not compiled, or computes its loss in a ``train_step`` of its own.
    """
    keras = loaded()
    if not getattr(model, "compiled", False):
        raise ArgumentError(
            f"{what}: the model {model.name!r} is not compiled, so it has no loss to differentiate; call "
            "model.compile(optimizer, loss) before, or give a function that returns the loss"
        )
    if type(model).train_step is not keras.Model.train_step:
        raise ArgumentError(
            f"{what}: {type(model).__name__} has a train_step of its own, whose loss only it knows; give a "
            "function that returns this loss"
        )
    return _fit_loss


def _fit_loss(model: Any, x: object, y: Any = None, sample_weight: Any = None) -> Any:
    keras = loaded()
    x, y, sample_weight = (
        None if one is None else keras.tree.map_structure(keras.ops.convert_to_tensor, one)
        for one in (x, y, sample_weight)
    )
    predictions = model(x, **({"training": True} if model._call_has_training_arg else {}))
    loss = model._compute_loss(x=x, y=y, y_pred=predictions, sample_weight=sample_weight, training=True)
    if model._compile_loss is None and not model.losses and _is_default(model.compute_loss):
        raise ArgumentError(f"the model {model.name!r} has no loss: give one, model.compile(optimizer, loss)")
    return loss


def _is_default(method: Any) -> bool:
    """Whether a method of a model is Keras' own."""
    return getattr(loaded().Model, method.__name__) is getattr(method, "__func__", None)


# ---------------------------------------------------------------------------------------- a step of fit


def fit_callback(monitor: Any, begin: Callable[[Any], object], run: Callable[..., object]) -> object:
    """A callback for ``model.fit``, whose batches are the steps of a monitor.

    The train function of the model is replaced for each batch that is sampled, and put back as soon as it is
    called: so it is as it was whether or not the batch fails, of which Keras tells no callback.

    Args:
        monitor: its ``due`` says whether the present ``step`` is sampled.
        begin: is told the model when its training begins.
        run: runs a step that is sampled, given the model, its train function and the arguments of that.

    Raises:
        ArgumentError: Keras is not imported.
    """
    keras = loaded()
    if keras is None:
        raise ArgumentError("keras_callback: Keras 3 is not imported: there is no model to train with it")
    base: Any = keras.callbacks.Callback

    class MonitorCallback(base):  # type: ignore[misc]
        """Samples batches of training."""

        def on_train_begin(self, logs: object = None) -> None:
            begin(self.model)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if not monitor.due:
                monitor.step += 1
                return
            model = self.model
            original = model.train_function

            def sampled(*args: object) -> object:
                model.train_function = original
                return run(model, original, *args)

            model.train_function = sampled

    return MonitorCallback()


def current(
    model: Any, trainable: Iterable[Any], others: Iterable[Any], optimizing: Iterable[Any] = ()
) -> AbstractContextManager[object]:
    """A context in which variables of a model, and of its optimizer, have the values that ``fit`` keeps."""
    return scope(
        [
            *zip(model.trainable_variables, trainable, strict=True),
            *zip(model.non_trainable_variables, others, strict=True),
            *zip(model.optimizer.variables, optimizing, strict=False),
        ]
    )


def unpacked(batch: object) -> tuple[Any, Any, Any]:
    """What a batch of ``fit`` has: ``x``, ``y`` and weights of samples, of which the last two may be None."""
    parts: tuple[Any, Any, Any] = loaded().utils.unpack_x_y_sample_weight(batch)
    return parts
