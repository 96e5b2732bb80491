"""Programs with Keras on one backend, which print what is found in them as JSON.

``KERAS_BACKEND=torch python keras_programs.py``: Keras has one backend for each process. With ``few``, what
plain tests run.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import keras
import numpy as np

BACKEND = keras.config.backend()
own: Any = importlib.import_module(f"stopgrad.{BACKEND}")
ops, layers = keras.ops, keras.layers
X = np.linspace(-1.0, 1.0, 32, dtype="float32").reshape(8, 4)
Y = np.ones((8, 1), "float32")


@keras.saving.register_keras_serializable()
class Net(keras.Model):
    """A network with averages and dropout, whose own call may cut the gradient of its body."""

    def __init__(self, cut: bool = False) -> None:
        super().__init__()
        self.cut, self.fails = cut, False
        self.body = layers.Dense(8, activation="relu", name="body")
        self.norm = layers.BatchNormalization(name="norm")
        self.drop = layers.Dropout(0.25)
        self.head = layers.Dense(1, name="head")

    def call(self, x: Any, training: bool = False) -> Any:
        if self.fails:
            raise RuntimeError("a batch that fails")
        hidden = self.drop(self.norm(self.body(x), training=training), training=training)
        if self.cut:
            hidden = ops.stop_gradient(hidden)  # the cut
        return self.head(hidden)


class Added(layers.Layer):  # type: ignore[misc]
    """Adds the mean of what goes through it to the loss."""

    def call(self, x: Any) -> Any:
        self.add_loss(ops.mean(ops.square(x)))
        return x


def net(cut: bool = False) -> Any:
    made = Net(cut)
    made(X)
    made.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=False)
    return made


def functional(cut: bool = False, frozen: bool = False, added: bool = False) -> Any:
    x = keras.Input((4,))
    body = layers.Dense(3, name="body", trainable=not frozen)(x)
    body = Added()(body) if added else body
    body = ops.stop_gradient(body) if cut else body
    model = keras.Model(x, layers.Dense(1, name="head")(body))
    model.compile("sgd", "mse")
    return model


def told(flow: Any) -> dict[str, Any]:
    return {
        "arrives": {key: bool(flow[key].arrives) for key in flow.xs},
        "status": {key: str(flow[key].status) for key in flow.xs},
        "text": str(flow),
    }


def short(key: str) -> str:
    return "/".join(key.split("/")[-2:])


def own_gradients(model: Any) -> dict[str, bool]:
    """At which weights the backend's own gradient of the loss of ``fit`` arrives."""
    if BACKEND == "torch":
        model.zero_grad()
        made = model(X, training=True)
        model.compute_loss(x=X, y=ops.convert_to_tensor(Y), y_pred=made).backward()
        return {v.path: v.value.grad is not None for v in model.trainable_variables}
    jax = importlib.import_module("jax")
    values = [[v.value for v in vs] for vs in (model.trainable_variables, model.non_trainable_variables)]
    grads = jax.grad(
        lambda *given: model.compute_loss_and_updates(
            *given,
            [],
            X,
            Y,
            None,
            training=True,
            optimizer_variables=[v.value for v in model.optimizer.variables],
        )[0]
    )(*values)
    return {v.path: bool((g != 0).any()) for v, g in zip(model.trainable_variables, grads, strict=True)}


# ------------------------------------------------------------------------------------------ the programs


def fits() -> dict[str, Any]:
    """``explain(model, x, y)``, of wrong and right models, with the backend's own gradients."""
    models = {
        "right": net(),
        "cut": net(cut=True),
        "functional": functional(),
        "functional cut": functional(cut=True),
        "frozen": functional(frozen=True),
        "added": functional(cut=True, added=True),
    }
    found = {}
    for name, model in models.items():
        before = [np.array(v.numpy()) for v in model.variables]
        one = told(own.explain(model, X, Y))
        same = all((a == v.numpy()).all() for a, v in zip(before, model.variables, strict=True))
        found[name] = one | {"same": same, "own": own_gradients(model)}
    unbuilt = keras.Sequential([layers.Dense(2, name="late"), layers.Dense(1, name="last")])
    unbuilt.compile("sgd", "mse")
    found["unbuilt"] = told(own.explain(unbuilt, X, Y)) | {"same": True, "own": own_gradients(unbuilt)}
    return found


def updates() -> dict[str, Any]:
    """``explain(model, x, y, optimizer=...)``, and what ``fit`` moves; and what is refused."""
    found: dict[str, Any] = {}
    for name, make in {
        "adamw": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1),
        "sgd": lambda: keras.optimizers.SGD(0.1),
    }.items():
        for cut in (False, True):
            model = Net(cut)
            model(X)
            model.compile(make(), "mse", run_eagerly=BACKEND == "torch")
            before = [np.array(v.numpy()) for v in (*model.variables, *model.optimizer.variables)]
            flow = own.explain(model, X, Y, optimizer=model)
            after = [np.array(v.numpy()) for v in (*model.variables, *model.optimizer.variables)]
            same = all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
            told = {key: flow[key].update.verdict for key in flow.xs if flow[key].update is not None}
            old = {v.path: np.array(v.numpy()) for v in model.trainable_variables}
            monitor = own.monitor(model, every=1, to=[], optimizer=model)
            model.fit(X, Y, epochs=1, verbose=0, batch_size=8, callbacks=[monitor.keras_callback()])
            moved = {v.path: not np.array_equal(old[v.path], v.numpy()) for v in model.trainable_variables}
            changes = [[one.state, [short(key) for key in one.keys]] for one in monitor.changes]
            found[f"{name} cut" if cut else name] = {
                "verdicts": told, "moved": moved, "same": same, "changes": changes
            }  # fmt: skip
    model = net()
    found["refused"] = {}
    for name, wrong in {"a number": 3, "a layer": layers.Dense(1)}.items():
        try:
            own.explain(model, X, Y, optimizer=wrong)
        except Exception as error:
            found["refused"][name] = f"{type(error).__name__}: {error}"
    return found


def refused() -> dict[str, str]:
    """Models whose loss is not known."""

    class Steps(keras.Model):  # type: ignore[misc, unused-ignore]
        def train_step(self, *args: Any) -> Any:
            return {}

    x = keras.Input((4,))
    steps = Steps(x, layers.Dense(1)(x))
    steps.compile("sgd", "mse")
    lossless = keras.Model(x, layers.Dense(1)(x))
    lossless.compile("sgd")
    found = {}
    for name, model in {"uncompiled": Net(), "steps": steps, "lossless": lossless}.items():
        try:
            found[name] = str(own.explain(model, X, Y))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


SHARED = functional(cut=True)


class Holder:
    """Has its models in a list."""

    def __init__(self, *models: Any) -> None:
        self.models = list(models)

    def loss(self, x: Any) -> Any:
        return ops.mean(ops.square(self.models[0](x)))


def functions() -> dict[str, Any]:
    """Functions of models: given as an argument, closed over, global, in a list of an object, in a jit."""
    wrong, right, holder = net(cut=True), net(), Holder(net(cut=True))
    x = ops.convert_to_tensor(X)

    def given(model: Any, x: Any) -> Any:
        return ops.mean(ops.square(model(x)))

    found = {
        "argument": own.explain(given, wrong, x),
        "right argument": own.explain(given, right, x),
        "call": own.explain(wrong, x),
    }
    if BACKEND == "torch":
        found["closure"] = own.explain(lambda: given(wrong, x), model=wrong)
        found["list"] = own.explain(lambda: given(wrong, x), model=wrong.trainable_variables)
        found["global"] = own.explain(lambda: given(SHARED, x), model=SHARED)
        found["holder"] = own.explain(holder.loss, x, model=holder.models)
        torch = importlib.import_module("torch")
        inside = torch.nn.Sequential(torch.nn.Linear(4, 4), functional(), torch.nn.Linear(1, 1))
        found["inside"] = own.explain(inside, x)
    else:
        jax = importlib.import_module("jax")
        found["closure"] = own.explain(lambda: given(wrong, x))
        found["global"] = own.explain(lambda: given(SHARED, x))
        found["holder"] = own.explain(holder.loss, x)
        jitted = jax.jit(holder.loss)
        jitted(x)
        found["jit"] = own.explain(jitted, x)
        left = functional()
        found["unused"] = own.explain(lambda model, x: x.sum(), left, x)

        def stateless(weights: Any, x: Any) -> Any:
            return wrong.stateless_call(weights, wrong.non_trainable_variables, x)[0].sum()

        found["stateless"] = own.explain(stateless, wrong.trainable_variables, x, argnums=0)
    return {name: told(flow) for name, flow in found.items()}


class Dies(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Kills the units of a model's body before its second epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            if BACKEND == "jax":
                self.model.jax_state_sync()
            self.model.body.bias.assign(np.full((8,), -100.0, "float32"))


class Fails(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """Lets the first batch fail."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.model.fails = True


def monitored() -> dict[str, Any]:
    """``fit`` with a monitor: of a right model, of one that dies, of one that is cut, of one that fails."""
    found: dict[str, Any] = {}
    for name in ("right", "dies", "cut"):
        callbacks = [Dies()] if name == "dies" else []
        keras.utils.set_random_seed(0)
        model = net(cut=name == "cut")
        monitor = own.monitor(model, every=1, to=[])
        watched = [*callbacks, monitor.keras_callback()]
        history = model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=watched)
        keras.utils.set_random_seed(0)
        twin = net(cut=name == "cut")
        other = twin.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
        found[name] = {
            "changes": [[c.step, c.state, sorted(map(short, c.keys))] for c in monitor.changes],
            "texts": [str(c) for c in monitor.changes],
            "steps": monitor.step,
            "same": history.history == other.history,
            "restored": not model.train_function.__qualname__.startswith("fit_callback"),
        }
    model = net()
    monitor = own.monitor(model, every=1, to=[])
    try:
        model.fit(X, Y, verbose=0, callbacks=[monitor.keras_callback(), Fails()])
    except RuntimeError as error:
        restored = not model.train_function.__qualname__.startswith("fit_callback")
        torch = sys.modules.get("torch")
        modes = torch._C._len_torch_function_stack() if BACKEND == "torch" and torch else 0
        found["fails"] = {"told": "a batch that fails" in str(error), "restored": restored, "modes": modes}
    return found


def few() -> dict[str, Any]:
    """A right model and one that is cut: explained, and one step of ``fit`` with a monitor."""
    found = {}
    for name, cut in (("right", False), ("cut", True)):
        model = functional(cut=cut)
        explained = told(own.explain(model, X, Y))
        monitor = own.monitor(model, every=1, to=[])
        model.fit(X, Y, batch_size=8, epochs=1, verbose=0, callbacks=[monitor.keras_callback()])
        changes = [[c.step, c.state, sorted(map(short, c.keys))] for c in monitor.changes]
        found[name] = explained | {"own": own_gradients(model), "changes": changes}
    return found


PROGRAMS = {f.__name__: f for f in (fits, refused, functions, monitored, updates)}

if __name__ == "__main__":
    chosen = {"few": few} if sys.argv[1:] == ["few"] else PROGRAMS
    print(json.dumps({name: program() for name, program in chosen.items()}), file=sys.stdout)
