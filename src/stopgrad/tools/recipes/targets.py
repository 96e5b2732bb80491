"""Networks that learn from their own output as a target: SimSiam, and temporal differences.

    SimSiam:  loss = ½ D(p₁, stop z₂) + ½ D(p₂, stop z₁),    D(p, z) = -mean cos(p, z)
    TD:       loss = mean (V(s) - (r + stop V(s')))²

In SimSiam two views of one image go through the same encoder, z = f(view), and a predictor, p = h(z), which
is to foresee the other view's z. That target comes from the very weights that are trained. Without the stop
the easiest way to agree is to map every image to one point: the encoder collapses. With it, the encoder
learns without labels what a digit looks like, wherever it stands: given the labels of unmoved digits, it
recognises digits moved by a pixel, which a comparison of pixels cannot.

In TD learning the target r + V(s') likewise holds the values that are learnt. Without the stop the error is
also made small by bending V(s') to V(s): where transitions are random, that converges to wrong values.

Sources: Chen & He 2021, "Exploring simple Siamese representation learning" (arXiv 2011.10566); Sutton & Barto
2018, "Reinforcement learning: an introduction", example 11.2 (the A-split) on the naive residual-gradient
method; Baird 1995.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

import stopgrad as sg
from stopgrad.base.namespaces import require
from stopgrad.tools.recipes import plots
from stopgrad.tools.recipes.result import (
    Check,
    LossGraph,
    Picture,
    Progress,
    Result,
    Table,
    differentiate,
    silent,
)
from stopgrad.tools.recipes.training import adam, cosine, initial_moments, weights

Array: TypeAlias = sg.Output | np.ndarray[Any, Any]
Numbers = np.ndarray[Any, Any]
Network = dict[str, Any]


def normalised(x: Array) -> Array:
    """Batch normalisation: every feature with mean 0 and variance 1 over the batch."""
    centred = x - sg.reduce_mean(x, axis=0, keepdims=True)
    return centred * sg.rsqrt(sg.reduce_mean(centred * centred, axis=0, keepdims=True) + 1e-5)


def encode(net: Network, x: Array) -> Array:
    """f: from images to points."""
    h = sg.relu(normalised(x @ net["W1"]))
    h = sg.relu(normalised(h @ net["W2"]))
    return h @ net["W3"] + net["b3"]


def predict(net: Network, z: Array) -> Array:
    """h: from one view's point to the other's."""
    return sg.relu(normalised(z @ net["W4"])) @ net["W5"] + net["b5"]


def unit(z: Array) -> Array:
    """Each row at length 1."""
    return z * sg.rsqrt(sg.reduce_sum(z * z, axis=-1, keepdims=True) + 1e-12)


def distance(p: Array, z: Array) -> Array:
    """D: minus the mean cosine."""
    return -sg.reduce_mean(sg.reduce_sum(unit(p) * unit(z), axis=-1))


def simsiam_loss(net: Network, view1: Array, view2: Array) -> Array:
    """Each view's prediction against the other's point, which counts as given."""
    z1, z2 = encode(net, view1), encode(net, view2)
    p1, p2 = predict(net, z1), predict(net, z2)
    return 0.5 * distance(p1, sg.stop_gradient(z2)) + 0.5 * distance(p2, sg.stop_gradient(z1))


def simsiam_loss_without_stop(net: Network, view1: Array, view2: Array) -> Array:
    """The same value; the gradient also moves the targets."""
    z1, z2 = encode(net, view1), encode(net, view2)
    p1, p2 = predict(net, z1), predict(net, z2)
    return 0.5 * distance(p1, z2) + 0.5 * distance(p2, z1)


def td_loss(values: Array, states: Array, rewards: Array, following: Array) -> Array:
    """The squared temporal-difference error of one-hot states; the target counts as given."""
    return sg.reduce_mean(sg.square(states @ values - (rewards + sg.stop_gradient(following @ values))))


def td_loss_without_stop(values: Array, states: Array, rewards: Array, following: Array) -> Array:
    """The naive residual gradient."""
    return sg.reduce_mean(sg.square(states @ values - (rewards + following @ values)))


# -------------------------------------------------------------------------------------------- SimSiam

HIDDEN, POINTS, NARROW = 512, 64, 64
BATCH, EPOCHS = 128, 60
RATE, WEIGHT_DECAY = 5e-3, 2.0
"""Of AdamW; the rate at the start, from where it falls to zero."""
WATCHED = 5
"""The points are looked at every so many epochs."""
LOSSES = {"with the stop": simsiam_loss, "without": simsiam_loss_without_stop}


def initial(
    rng: np.random.Generator,
    pixels: int = 64,
    hidden: int = HIDDEN,
    points: int = POINTS,
    narrow: int = NARROW,
) -> Network:
    """Random weights of encoder and predictor."""
    net = weights(
        rng,
        {
            "1": (pixels, hidden),
            "2": (hidden, hidden),
            "3": (hidden, points),
            "4": (points, narrow),
            "5": (narrow, points),
        },
    )
    return {name: value for name, value in net.items() if name not in ("b1", "b2", "b4")}


def moved(x: Numbers, rng: np.random.Generator) -> Numbers:
    """Images moved by up to a pixel in each direction, at random."""
    images = np.pad(x.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    down, right = rng.integers(0, 3, (2, len(x), 1, 1))
    rows, columns = np.arange(8)[:, None] + down, np.arange(8)[None, :] + right
    return images[np.arange(len(x))[:, None, None], rows, columns].reshape(len(x), -1)


def view(x: Numbers, rng: np.random.Generator) -> Numbers:
    """Images moved, at another contrast and with noise."""
    changed = moved(x, rng) * rng.uniform(0.8, 1.2, (len(x), 1)) + rng.normal(0, 0.1, x.shape)
    return changed.astype(np.float32)


def spread(z: Numbers) -> float:
    """The standard deviation of points on the sphere, times √dimensions.

    It is 1 where they fill the sphere and 0 where they are one point.
    """
    on_sphere = z / np.maximum(np.linalg.norm(z, axis=-1, keepdims=True), 1e-12)
    return float(on_sphere.std(axis=0).mean() * np.sqrt(z.shape[1]))


def neighbours_accuracy(
    z: Numbers, labels: Numbers, test: Numbers, test_labels: Numbers, k: int = 5
) -> float:
    """Accuracy of the vote of the k nearest labelled points, by cosine."""
    library = require("sklearn.neighbors", "the targets recipe", "tour")
    return float(library.KNeighborsClassifier(k, metric="cosine").fit(z, labels).score(test, test_labels))


def load(seed: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Digits between 0 and 1 with their classes: 1,300 to train on, the others to test."""
    data = require("sklearn.datasets", "the targets recipe", "tour").load_digits()
    order = np.random.default_rng(seed).permutation(len(data.data))
    x, labels = (data.data[order] / 16.0).astype(np.float32), data.target[order]
    return x[:1300], labels[:1300], x[1300:], labels[1300:]


def train(
    loss: Callable[..., Array],
    x: Numbers,
    seed: int,
    engine: str,
    watch: Callable[[int, Network, float], None],
    epochs: int = EPOCHS,
) -> Network:
    """Adam with weight decay on pairs of views, at a falling rate.

    *watch* is told how many epochs are done, the weights and the loss.
    """
    rng = np.random.default_rng(seed)
    net = initial(rng)
    moments = initial_moments(net)

    @sg.function(engine=engine)
    def step(net: Network, moments: Any, view1: Array, view2: Array, rate: Any) -> Any:
        value, gradient = sg.value_and_grad(lambda net: loss(net, view1, view2))(net)
        return *adam(net, gradient, moments, rate, WEIGHT_DECAY), value

    watch(0, net, float("nan"))
    batches = len(x) // BATCH
    for epoch in range(epochs):
        order = rng.permutation(len(x))
        for i in range(batches):
            some = x[order[i * BATCH : (i + 1) * BATCH]]
            rate = cosine(RATE, (epoch + i / batches) / epochs)
            net, moments, value = step(net, moments, view(some, rng), view(some, rng), rate)
        watch(epoch + 1, net, float(value))
    return net


# ----------------------------------------------------------------------------------------- the A-split

TRUE_VALUES = {"A": 0.5, "B": 1.0, "C": 0.0}


def a_split(loss: Callable[..., Array], engine: str, steps: int = 400) -> list[list[float]]:
    """Values of A, B, C during descent on all transitions.

    From A to B or C by chance, then to the end with reward 1 or 0.
    """
    states = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    following = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]], np.float32)
    rewards = np.array([0, 0, 1, 0], np.float32)
    step: Callable[..., Any] = sg.function(
        lambda v: v - 0.1 * sg.grad(loss)(v, states, rewards, following), engine=engine
    )
    values, trace = np.full(3, 0.2, np.float32), []
    for _ in range(steps):
        trace.append([float(v) for v in values])
        values = step(values)
    return [*trace, [float(v) for v in values]]


# ----------------------------------------------------------------------------------------- experiment


def run(seed: int = 0, engine: str = "auto", progress: Progress = silent) -> Result:
    """SimSiam on digits, asked about moved ones by nearest neighbours among unmoved ones; and the A-split.

    With the stop and without.
    """
    progress(0.0, "loading digits")
    x, labels, test, test_labels = load(seed)
    test = moved(test, np.random.default_rng(seed))
    by_pixels = neighbours_accuracy(x, labels, test, test_labels)
    points = sg.function(encode, engine=engine)
    watched: dict[str, Watched] = {}
    for i, (name, loss) in enumerate(LOSSES.items()):
        watched[name] = seen = Watched()

        def watch(epoch: int, net: Network, value: float, i: int = i, name: str = name) -> None:
            progress((i + epoch / EPOCHS) / 2.2, f"SimSiam {name}, epoch {epoch}")
            if epoch % WATCHED == 0:
                z, z_test = np.asarray(points(net, x)), np.asarray(points(net, test))
                watched[name].add(value, spread(z_test), neighbours_accuracy(z, labels, z_test, test_labels))

        seen.points = np.asarray(points(train(loss, x, seed, engine, watch), test))
    splits = {"with the stop": a_split(td_loss, engine), "without": a_split(td_loss_without_stop, engine)}
    progress(1.0, "done")
    return Result(
        "targets",
        "Own targets",
        "A network that learns from its own output must take that output as given; "
        "otherwise the target comes to meet it and all collapses.",
        [*_simsiam_checks(watched["with the stop"], watched["without"], by_pixels), *_td_checks(splits)],
        [_table(watched, by_pixels), _td_table(splits)],
        [*_curves(watched, by_pixels), _points_picture(watched, test_labels), _td_picture(splits)],
        [graph(True), graph(False)],
        [encode, simsiam_loss, td_loss],
    )


@dataclass
class Watched:
    """What is seen of a network while it trains."""

    losses: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    """On moved digits, by the nearest among unmoved ones."""
    points: Numbers = field(default_factory=lambda: np.zeros((0, POINTS)))
    """Where the trained encoder puts the test digits."""

    def add(self, loss: float, spread: float, accuracy: float) -> None:
        """One more look."""
        self.losses.append(loss)
        self.spreads.append(spread)
        self.accuracies.append(accuracy)


def _simsiam_checks(with_stop: Watched, without: Watched, by_pixels: float) -> list[Check]:
    right, wrong = with_stop.accuracies[-1], without.accuracies[-1]
    gain = wrong - without.accuracies[0]
    return [
        Check("SimSiam with the stop: spread of the points", with_stop.spreads[-1], "≥", 0.5),
        Check("SimSiam without: spread of the points (collapse)", without.spreads[-1], "≤", 0.1),
        Check("SimSiam with the stop: accuracy on moved digits", right, "≥", 0.75),
        Check("... minus that of nearest neighbours of pixels", right - by_pixels, "≥", 0.2),
        Check("SimSiam without: accuracy on moved digits", wrong, "≤", 0.4),
        Check("SimSiam without, minus its own untrained start: accuracy on moved digits", gain, "<", 0.0),
        Check("SimSiam with the stop minus without: accuracy on moved digits", right - wrong, "≥", 0.3),
    ]


def _td_checks(splits: dict[str, list[list[float]]]) -> list[Check]:
    errors = {
        name: max(abs(v - t) for v, t in zip(trace[-1], TRUE_VALUES.values(), strict=True))
        for name, trace in splits.items()
    }
    return [
        Check("TD with the stop: largest error of the values", errors["with the stop"], "≤", 1e-3),
        Check("TD without: largest error of the values", errors["without"], "≥", 0.2),
    ]


def graph(stopped: bool) -> LossGraph:
    """SimSiam's loss differentiated with respect to the two views' points."""
    example = {name: np.zeros((4, 3), np.float32) for name in ("z1", "z2")}
    net = {"W": np.zeros((3, 3), np.float32)}

    def loss(points: Network, W: Array) -> Array:
        z1, z2 = points["z1"], points["z2"]
        p1, p2 = z1 @ W, z2 @ W
        if stopped:
            return 0.5 * distance(p1, sg.stop_gradient(z2)) + 0.5 * distance(p2, sg.stop_gradient(z1))
        return 0.5 * distance(p1, z2) + 0.5 * distance(p2, z1)

    title = "SimSiam's loss with respect to the two points, " + ("with the stop" if stopped else "without it")
    note = "The predictor is a matrix here. " + (
        "Each point moves only as a prediction." if stopped else "Each point also moves as a target."
    )
    return differentiate(title, note, loss, example, **net)


def _table(watched: dict[str, Watched], by_pixels: float) -> Table:
    rows = [
        [
            name,
            f"{seen.losses[-1]:.3f}",
            f"{seen.spreads[-1]:.4f}",
            f"{seen.accuracies[0]:.1%}",
            f"{seen.accuracies[-1]:.1%}",
        ]
        for name, seen in watched.items()
    ]
    header = ["trained", "loss (best: -1)", "spread of points", "accuracy on moved digits before", "after"]
    return Table(
        f"SimSiam, {EPOCHS} epochs without a label",
        header,
        [*rows, ["pixels themselves", "", "", f"{by_pixels:.1%}", ""]],
    )


def _td_table(splits: dict[str, list[list[float]]]) -> Table:
    rows = [
        ["truth", *(f"{v:.3f}" for v in TRUE_VALUES.values())],
        *([name, *(f"{v:.3f}" for v in trace[-1])] for name, trace in splits.items()),
    ]
    return Table(
        "Temporal differences on the A-split: the value of each state", ["learnt", *TRUE_VALUES], rows
    )


def _curves(watched: dict[str, Watched], by_pixels: float) -> list[Picture]:
    epochs = range(0, EPOCHS + 1, WATCHED)
    spreads = {name: seen.spreads for name, seen in watched.items()}
    accuracies = {name: seen.accuracies for name, seen in watched.items()}
    lines = accuracies | {"nearest pixels, untrained": [by_pixels] * len(epochs)}
    return [
        plots.curves(
            "Spread of the 64-dimensional points of test digits: 0 is all in one point.",
            spreads,
            "epoch",
            "spread",
            xs=epochs,
            ylim=(-0.02, 1.05),
        ),
        plots.curves(
            "Test digits moved by a pixel, told by the nearest among unmoved ones.",
            lines,
            "epoch",
            "test accuracy",
            xs=epochs,
            ylim=(0.0, 1.02),
        ),
    ]


def _points_picture(watched: dict[str, Watched], labels: Numbers) -> Picture:
    """Test digits where the encoder puts them, both in the plane of the first one's main axes."""
    figure, axes = plots.figure(1, 2, size=(7.6, 3.6), sharex=True, sharey=True)
    library = require("sklearn.decomposition", "the targets recipe", "tour")
    for ax, (name, seen) in zip(axes[0], watched.items(), strict=True):
        norms = np.linalg.norm(seen.points, axis=-1, keepdims=True)
        on_sphere = seen.points / np.maximum(norms, 1e-12)
        plots.scatter(ax, library.PCA(2, random_state=0).fit_transform(on_sphere), labels)
        ax.set_title(name, fontsize=9.5)
        ax.set(xticks=[], yticks=[])
    return Picture(
        "Test digits on their two main axes after training, at one scale; "
        "colours are the digits, which training never saw.",
        figure,
        wide=True,
    )


def _td_picture(splits: dict[str, list[list[float]]]) -> Picture:
    lines = {
        f"{state}, {name}": [values[i] for values in trace[:200]]
        for i, state in enumerate(TRUE_VALUES)
        for name, trace in splits.items()
    }
    return plots.curves(
        "The A-split: true values are A ½, B 1, C 0. Dashed, without the stop: it settles on others.",
        lines,
        "step",
        "value",
        paired=True,
    )
