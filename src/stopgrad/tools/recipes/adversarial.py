"""Adversarial training: examples made from the gradient, then taken as given.

    FGSM:  x' = x + ε sign ∇ₓ L(x)
    PGD:   x' ← project(x' + α sign ∇ₓ L(x')), some times from a random start;  ‖x' - x‖∞ ≤ ε
    VAT:   r = ε g/‖g‖,  g = ∇_d KL(stop p(x) ‖ p(x + ξ d))  at a random direction d
    train on L(stop x'), for VAT on KL(stop p(x) ‖ p(x + stop r))

The example is made from the same weights that are then trained. Training asks for the derivative at the
example, not of how it was made: the stop keeps second derivatives of the network, through every step of the
attack, out of the gradient.

Sources: Goodfellow, Shlens & Szegedy 2015, "Explaining and harnessing adversarial examples" (arXiv
1412.6572); Madry et al. 2018, "Towards deep learning models resistant to adversarial attacks" (arXiv
1706.06083); Miyato et al. 2018, "Virtual adversarial training" (arXiv 1704.03976).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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
    part,
    silent,
)
from stopgrad.tools.recipes.training import adam, cosine, initial_moments, weights

Array: TypeAlias = sg.Output | np.ndarray[Any, Any]
Numbers = np.ndarray[Any, Any]
Network = dict[str, Any]
Attack = Callable[[Network, Array, Array, Array], Array]
"""From a network, images, one-hot labels and a key to images that are attacked."""

EPSILON = 0.15
"""How far a pixel, between 0 and 1, may be moved."""


def logits(net: Network, x: Array) -> Array:
    """A network with one hidden layer."""
    return sg.relu(x @ net["W1"] + net["b1"]) @ net["W2"] + net["b2"]


def cross_entropy(net: Network, x: Array, labels: Array) -> Array:
    """The mean over images of -log p(label | x)."""
    return sg.reduce_mean(sg.softmax_cross_entropy_with_logits(labels, logits(net, x)))


def ascend(net: Network, x: Array, labels: Array) -> Array:
    """The sign of the derivative of the loss with respect to the image."""
    return sg.sign(sg.grad(lambda x: cross_entropy(net, x, labels))(x))


def fgsm(net: Network, x: Array, labels: Array, key: Array | None = None, epsilon: float = EPSILON) -> Array:
    """The fast gradient sign method: one step to the border."""
    return sg.clip(x + epsilon * ascend(net, x, labels), 0.0, 1.0)


def pgd(net: Network, x: Array, labels: Array, key: Array, epsilon: float = EPSILON, steps: int = 5) -> Array:
    """Projected gradient descent: small steps, held within epsilon, from a random start."""
    near = x + sg.random_uniform(x.shape, key, -epsilon, epsilon)
    for _ in range(steps):
        near = near + 2.5 * epsilon / steps * ascend(net, near, labels)
        near = sg.clip(sg.minimum(sg.maximum(near, x - epsilon), x + epsilon), 0.0, 1.0)
    return near


def adversarial_loss(net: Network, x: Array, labels: Array, key: Array, attack: Attack) -> Array:
    """The loss at the attacked images, whose making is no part of the gradient."""
    return cross_entropy(net, sg.stop_gradient(attack(net, x, labels, key)), labels)


def divergence(net: Network, p: Array, x: Array) -> Array:
    """KL(p ‖ p(x)), the mean over images, but for the entropy of p, which is constant."""
    return sg.reduce_mean(sg.softmax_cross_entropy_with_logits(p, logits(net, x)))


def virtual_perturbation(
    net: Network, x: Array, p: Array, key: Array, epsilon: float, xi: float = 0.5
) -> Array:
    """The direction, of length epsilon, in which the prediction changes most.

    Found by one power iteration from a random one, on the curvature at the distance xi.
    """
    d = xi * unit(sg.random_normal(x.shape, key))
    return epsilon * unit(sg.grad(lambda d: divergence(net, p, x + d))(d))


def unit(d: Array) -> Array:
    """Each row at length 1."""
    return d / (sg.sqrt(sg.reduce_sum(d * d, axis=-1, keepdims=True)) + 1e-12)


def virtual_adversarial_loss(net: Network, x: Array, key: Array, epsilon: float = 0.5) -> Array:
    """How much the worst small perturbation changes the prediction. Needs no labels."""
    p = sg.stop_gradient(sg.softmax(logits(net, x)))
    r = virtual_perturbation(net, x, p, key, epsilon)
    return divergence(net, p, x + sg.stop_gradient(r))


# ------------------------------------------------------------------------------------------- training

HIDDEN, BATCH, EPOCHS = 512, 100, 40
"""Madry et al.: to withstand attacks takes more capacity than to tell digits."""
RATE = 1e-2
"""Of Adam at the start, from where it falls to zero."""
LABELLED, DRAWS, SEMI_EPOCHS = 5, 3, 20
"""With few labels: how many per digit, how often they are drawn, and how long is trained."""


def no_attack(net: Network, x: Array, labels: Array, key: Array) -> Array:
    """The images themselves."""
    return x


TRAININGS: dict[str, Attack] = {"plain": no_attack, "FGSM": fgsm, "PGD": pgd}


def initial(rng: np.random.Generator, pixels: int = 64) -> Network:
    """Random weights."""
    return weights(rng, {"1": (pixels, HIDDEN), "2": (HIDDEN, 10)})


def training_step(loss: Callable[[Network, Array, Array, Array], Array], engine: str) -> Callable[..., Any]:
    """One step of Adam, compiled: from weights, moments, images, labels, a key and a rate to new ones."""

    @sg.function(engine=engine)
    def step(
        net: Network, moments: Any, x: Array, labels: Array, key: Array, rate: Array
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        gradient = sg.grad(lambda net: loss(net, x, labels, key))(net)
        return adam(net, gradient, moments, rate)

    return step


def train(
    step: Callable[..., Any],
    x: Numbers,
    labels: Numbers,
    seed: int,
    epochs: int = EPOCHS,
    progress: Callable[[float], None] = lambda done: None,
    labelled: Any = (),
) -> Network:
    """Training steps on minibatches, at a falling rate. The rows *labelled* lead every batch."""
    rng = np.random.default_rng(seed)
    net = initial(rng)
    moments = initial_moments(net)
    batches = len(x) // BATCH
    for epoch in range(epochs):
        order = rng.permutation(len(x))
        for i in range(batches):
            rows = np.concatenate([np.asarray(labelled, int), order[i * BATCH : (i + 1) * BATCH]])
            key = rng.integers(0, 2**32, 2, dtype=np.uint32)
            rate = cosine(RATE, (epoch + i / batches) / epochs)
            net, moments = step(net, moments, x[rows], labels[rows], key, rate)
        progress((epoch + 1) / epochs)
    return net


def load(seed: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Digits between 0 and 1 with one-hot labels: 1,300 to train on, the others to test."""
    data = require("sklearn.datasets", "the adversarial recipe", "tour").load_digits()
    order = np.random.default_rng(seed).permutation(len(data.data))
    x, labels = (data.data[order] / 16.0).astype(np.float32), np.eye(10, dtype=np.float32)[data.target[order]]
    return x[:1300], labels[:1300], x[1300:], labels[1300:]


class Judge:
    """Accuracy on test digits as they are and under attack."""

    x: Numbers
    labels: Numbers
    attacks: dict[str, sg.Function]

    def __init__(self, x: Numbers, labels: Numbers, seed: int, engine: str) -> None:
        self.x, self.labels = x, labels
        self._key = np.array([seed, 12345], np.uint32)
        attacks: dict[str, Attack] = {
            "clean": no_attack,
            "FGSM": fgsm,
            "PGD, 10 steps": functools.partial(pgd, steps=10),
        }
        self.attacks = {name: sg.function(attack, engine=engine) for name, attack in attacks.items()}
        self._at = sg.function(lambda net, x, y, e: fgsm(net, x, y, None, e), engine=engine)
        self._logits = sg.function(logits, engine=engine)

    def attacked(self, net: Network, attack: str) -> Numbers:
        """The test digits under this attack."""
        return np.asarray(self.attacks[attack](net, self.x, self.labels, self._key))

    def predictions(self, net: Network, x: Numbers) -> Numbers:
        return np.asarray(self._logits(net, x)).argmax(axis=-1)

    def accuracy(self, net: Network, x: Numbers) -> float:
        return float(np.mean(self.predictions(net, x) == self.labels.argmax(axis=-1)))

    def over_strength(self, net: Network, strengths: Numbers) -> list[float]:
        """Accuracy under FGSM of each strength."""
        return [
            self.accuracy(net, np.asarray(self._at(net, self.x, self.labels, np.float32(e))))
            for e in strengths
        ]


# ----------------------------------------------------------------------------------------- experiment


def run(seed: int = 0, engine: str = "auto", progress: Progress = silent) -> Result:
    """Train plainly and on attacked digits, compare clean and robust accuracy; then VAT with 50 labels."""
    progress(0.0, "loading digits")
    x, labels, test, test_labels = load(seed)
    judge = Judge(test, test_labels, seed, engine)
    nets: dict[str, Network] = {}
    for i, (name, attack) in enumerate(TRAININGS.items()):

        def loss(net: Network, x: Array, y: Array, key: Array, attack: Attack = attack) -> Array:
            return adversarial_loss(net, x, y, key, attack)

        nets[name] = train(
            training_step(loss, engine),
            x,
            labels,
            seed,
            progress=part(progress, i / 5.5, (i + 1) / 5.5, f"training: {name}"),
        )
    semi = semi_supervised(
        x, labels, judge, seed, engine, part(progress, 3 / 5.5, 1.0, "training with 50 labels")
    )
    robust = {
        name: {a: judge.accuracy(net, judge.attacked(net, a)) for a in judge.attacks}
        for name, net in nets.items()
    }
    graphs = [graph("FGSM", True), graph("VAT", True), graph("VAT", False)]
    checks = [
        *(
            Check(
                f"{kind}: gradient operations inside the example's construction",
                len(graph(kind, True).passing()),
                "=",
                0,
            )
            for kind in ("FGSM", "PGD", "VAT")
        ),
        Check("VAT without the stop: gradient operations inside it", len(graphs[2].passing()), "≥", 1),
        Check("plain training: clean accuracy", robust["plain"]["clean"], "≥", 0.95),
        Check("PGD training: clean accuracy", robust["PGD"]["clean"], "≥", 0.95),
        Check(
            "PGD training minus plain: accuracy under PGD",
            robust["PGD"]["PGD, 10 steps"] - robust["plain"]["PGD, 10 steps"],
            "≥",
            0.2,
        ),
        Check("VAT minus plain, 50 labels: clean accuracy", semi["VAT"] - semi["plain"], "≥", 0.02),
    ]
    progress(1.0, "done")
    return Result(
        "adversarial",
        "Adversarial training",
        "The attack is made by gradients of the network and then taken as given: "
        "trained on such digits, the network withstands them.",
        checks,
        _tables(robust, semi),
        [_examples(nets, judge), _strength_picture(nets, judge)],
        graphs,
        [fgsm, pgd, adversarial_loss, virtual_perturbation, virtual_adversarial_loss],
    )


def semi_supervised(
    x: Numbers,
    labels: Numbers,
    judge: Judge,
    seed: int,
    engine: str,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, float]:
    """Test accuracy with 5 labels per digit: trained on these alone, and with VAT on all images.

    Which digits are labelled decides much: the mean over several draws of them.
    """
    count = 10 * LABELLED

    def plain(net: Network, x: Array, y: Array, key: Array) -> Array:
        return cross_entropy(net, x[:count], y[:count])

    def virtual(net: Network, x: Array, y: Array, key: Array) -> Array:
        return plain(net, x, y, key) + virtual_adversarial_loss(net, x[count:], key)

    steps = {"plain": training_step(plain, engine), "VAT": training_step(virtual, engine)}
    by_method: dict[str, list[float]] = {name: [] for name in steps}
    for draw in range(DRAWS):
        rng = np.random.default_rng([seed, draw])
        classes = [rng.permutation(np.flatnonzero(labels[:, c])) for c in range(10)]
        labelled = np.concatenate([of_class[:LABELLED] for of_class in classes])
        for name, step in steps.items():
            net = train(step, x, labels, seed + draw, SEMI_EPOCHS, labelled=labelled)
            by_method[name].append(judge.accuracy(net, judge.x))
        progress((draw + 1) / DRAWS)
    return {name: float(np.mean(accuracies)) for name, accuracies in by_method.items()}


def graph(kind: str, stopped: bool, pixels: int = 4) -> LossGraph:
    """The loss on attacked images, with the operations that make the attack named as its construction."""
    rng = np.random.default_rng(0)
    net = weights(rng, {"1": (pixels, 3), "2": (3, 10)})

    def loss(net: Network, x: sg.Output, labels: Array, key: Array) -> tuple[Array, list[sg.Operation]]:
        stop: Callable[[Array], Array] = sg.stop_gradient if stopped else lambda x: x
        if kind == "VAT":
            p = sg.stop_gradient(sg.softmax(logits(net, x)))
            before = len(x.graph)
            r = virtual_perturbation(net, x, p, key, 1.0)
            construction = list(x.graph.operations[before:])
            return divergence(net, p, x + stop(r)), construction
        before = len(x.graph)
        attacked = TRAININGS[kind](net, x, labels, key)
        construction = list(x.graph.operations[before:])
        return cross_entropy(net, stop(attacked), labels), construction

    example = {
        "x": np.zeros((2, pixels), np.float32),
        "labels": np.zeros((2, 10), np.float32),
        "key": np.zeros(2, np.uint32),
    }
    title = f"{kind}, " + ("with the stop" if stopped else "without it")
    note = (
        "Nothing is generated for the making of the example."
        if stopped
        else "The gradient goes through the making of the example, with second derivatives."
    )
    return differentiate(title, note, loss, net, **example)


def _tables(robust: dict[str, dict[str, float]], semi: dict[str, float]) -> list[Table]:
    attacks = list(next(iter(robust.values())))
    rows = [[name, *(f"{accuracy[a]:.1%}" for a in attacks)] for name, accuracy in robust.items()]
    return [
        Table(
            f"Accuracy on 497 test digits, pixels moved by at most {EPSILON}", ["trained on", *attacks], rows
        ),
        Table(
            f"With 50 labels and 1,250 digits without one, mean of {DRAWS} draws",
            ["training", "test accuracy"],
            [[name, f"{a:.1%}"] for name, a in semi.items()],
        ),
    ]


def _examples(nets: dict[str, Network], judge: Judge, count: int = 12) -> Picture:
    """Digits that the plain network has right until they are attacked."""
    truth = judge.labels.argmax(axis=-1)
    attacked = {name: judge.attacked(nets[name], "PGD, 10 steps") for name in ("plain", "PGD")}
    before, after = (
        judge.predictions(nets["plain"], judge.x),
        judge.predictions(nets["plain"], attacked["plain"]),
    )
    chosen = np.flatnonzero((before == truth) & (after != truth))[:count]
    held = judge.predictions(nets["PGD"], attacked["PGD"])
    rows = {
        "digit": judge.x[chosen],
        "attack": (attacked["plain"] - judge.x)[chosen],
        "plain network sees": attacked["plain"][chosen],
        "PGD network sees": attacked["PGD"][chosen],
    }
    titles = {
        "digit": [str(t) for t in truth[chosen]],
        "plain network sees": [f"“{p}”" for p in after[chosen]],
        "PGD network sees": [f"“{p}”" for p in held[chosen]],
    }
    caption = (
        "Test digits, the attack on the plain network, "
        "and what each network says of the digit attacked against itself (PGD, 10 steps)."
    )
    return plots.images(caption, rows, titles=titles, symmetric=["attack"])


def _strength_picture(nets: dict[str, Network], judge: Judge) -> Picture:
    strengths = np.linspace(0.0, 0.4, 17)
    lines = {name: judge.over_strength(net, strengths) for name, net in nets.items()}
    return plots.curves(
        "Accuracy under FGSM of growing strength.",
        lines,
        "ε",
        "test accuracy",
        xs=strengths,
        ylim=(0.0, 1.02),
    )
