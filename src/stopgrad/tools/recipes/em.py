"""Expectation maximisation of a Gaussian mixture, with the M-step found by gradients.

    log p(x, z=k) = log πₖ + log N(x | μₖ, Σₖ)
    E-step:  rₙₖ = p(z=k | xₙ),  the responsibilities
    M-step:  maximise  Q = mean over n of Σₖ stop(rₙₖ) log p(xₙ, z=k)

The responsibilities are computed from the same parameters with respect to which Q is differentiated. EM takes
them as given: the stop says so in the one place where it matters, and Q is then the lower bound that touches
the log-likelihood at these parameters with the same gradient (Fisher's identity). Without the stop the
gradient points elsewhere.

A covariance is held as the factor of its inverse, Σ⁻¹ = L Lᵀ, with L lower triangular and its diagonal as
logarithms, so that log |L| = Σ log Lᵢᵢ and no matrix is inverted. "diagonal" leaves out what is below the
diagonal.

Sources: Dempster, Laird & Rubin 1977, "Maximum likelihood from incomplete data via the EM algorithm"; Neal &
Hinton 1998, "A view of the EM algorithm that justifies incremental, sparse, and other variants".
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
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

Array: TypeAlias = sg.Output | np.ndarray[Any, Any]
Numbers = np.ndarray[Any, Any]
Mixture = dict[str, Any]
"""Parameters: "logit" [K], "mean" [K, D], "log_diagonal" [K, D]; "below" [K, D, D] for full covariance."""

LOG_2PI = float(np.log(2 * np.pi))


def log_joint(x: Array, mixture: Mixture) -> Array:
    """log p(x, z=k) of N points under K components: [N, K]."""
    log_weight = mixture["logit"] - sg.reduce_logsumexp(mixture["logit"])
    centred = sg.expand_dims(x, 0) - sg.expand_dims(mixture["mean"], 1)
    whitened = centred * sg.exp(sg.expand_dims(mixture["log_diagonal"], 1))
    if "below" in mixture:
        d = x.shape[-1]
        whitened = whitened + centred @ (mixture["below"] * np.tril(np.ones((d, d)), -1))
    square = sg.reduce_sum(whitened * whitened, axis=-1)
    log_density = (
        sg.reduce_sum(mixture["log_diagonal"], axis=-1, keepdims=True)
        - 0.5 * square
        - 0.5 * x.shape[-1] * LOG_2PI
    )
    return sg.transpose(sg.expand_dims(log_weight, 1) + log_density)


def log_likelihood(x: Array, mixture: Mixture) -> Array:
    """The mean over points of log p(x)."""
    return sg.reduce_mean(sg.reduce_logsumexp(log_joint(x, mixture), axis=-1))


def responsibilities(x: Array, mixture: Mixture) -> Array:
    """E-step: p(z=k | x), [N, K]."""
    return sg.softmax(log_joint(x, mixture), axis=-1)


def expected_log_likelihood(x: Array, mixture: Mixture, r: Array) -> Array:
    """Q: the mean over points of the complete log-likelihood that responsibilities r expect."""
    return sg.reduce_mean(sg.reduce_sum(r * log_joint(x, mixture), axis=-1))


def em_objective(x: Array, mixture: Mixture) -> Array:
    """Q with its own E-step inside, whose responsibilities count as given."""
    return expected_log_likelihood(x, mixture, sg.stop_gradient(responsibilities(x, mixture)))


def em_objective_without_stop(x: Array, mixture: Mixture) -> Array:
    """The same value, but the gradient also moves the responsibilities: not EM."""
    return expected_log_likelihood(x, mixture, responsibilities(x, mixture))


def closed_form(x: Numbers, r: Numbers, full: bool) -> Mixture:
    """The textbook's M-step, by hand in NumPy: weighted counts, means and covariances."""
    n = r.sum(axis=0)
    mean = (r.T @ x) / n[:, None]
    mixture = {"logit": np.log(n / n.sum()), "mean": mean}
    if not full:
        variance = np.stack([r[:, k] @ (x - mean[k]) ** 2 / n[k] for k in range(len(n))])
        return mixture | {"log_diagonal": -0.5 * np.log(variance)}
    covariance = [(r[:, k, None] * (x - mean[k])).T @ (x - mean[k]) / n[k] for k in range(len(n))]
    factor = np.linalg.cholesky(np.linalg.inv(np.stack(covariance)))
    return mixture | {
        "log_diagonal": np.log(np.diagonal(factor, axis1=1, axis2=2)),
        "below": np.tril(factor, -1),
    }


def weights_and_moments(mixture: Mixture) -> tuple[Numbers, Numbers, Numbers]:
    """π, μ and Σ: what two mixtures are compared by."""
    w = np.exp(mixture["logit"] - mixture["logit"].max())
    factor = np.stack([np.diag(np.exp(d)) for d in mixture["log_diagonal"]])
    if "below" in mixture:
        factor = factor + np.tril(mixture["below"], -1)
    return w / w.sum(), mixture["mean"], np.linalg.inv(factor @ np.swapaxes(factor, 1, 2))


# ----------------------------------------------------------------------------------- the M-step solved


class Maximiser:
    """Newton's method for Q with r held fixed.

    Gradients and Hessian products come from stopgrad, the search from SciPy. The Hessian is never built: a
    product with it is the forward derivative of the gradient.
    """

    def __init__(self, x: Numbers, like: Mixture, engine: str) -> None:
        self.x = x
        self._shapes = {name: np.shape(value) for name, value in like.items()}
        self._optimize = require("scipy.optimize", "solving the M-step", "tour")
        self._linalg = require("scipy.sparse.linalg", "solving the M-step", "tour")

        def negative_q(mixture: Mixture, x: Array, r: Array) -> Array:
            return -expected_log_likelihood(x, mixture, sg.stop_gradient(r))

        self._value_and_grad = sg.function(sg.value_and_grad(negative_q), engine=engine)
        self._product = sg.function(
            lambda m, t, x, r: sg.jvp(lambda m: sg.grad(negative_q)(m, x, r), (m,), (t,))[1], engine=engine
        )

    def __call__(self, mixture: Mixture, r: Numbers, tolerance: float = 1e-9) -> tuple[Mixture, float]:
        """The mixture at which Q is largest, and the largest component of the gradient there."""

        def q(v: Numbers) -> tuple[float, Numbers]:
            value, gradient = self._value_and_grad(self._unpack(v), self.x, r)
            return float(value), self._pack(gradient)

        def product(v: Numbers, t: Numbers) -> Numbers:
            return self._pack(self._product(self._unpack(v), self._unpack(t), self.x, r))

        v = self._optimize.minimize(
            q, self._pack(mixture), jac=True, hessp=product, method="trust-ncg", options={"gtol": tolerance}
        ).x
        # Near the optimum the value cannot tell better from worse any more; the gradient can.
        for _ in range(3):
            gradient = q(v)[1]
            if np.abs(gradient).max() <= tolerance:
                break
            hessian = self._linalg.LinearOperator(
                (len(v), len(v)), matvec=lambda t, v=v: product(v, t), dtype=np.float64
            )
            v = v - self._linalg.cg(hessian, gradient, rtol=1e-6, maxiter=200)[0]
        return self._unpack(v), float(np.abs(q(v)[1]).max())

    def _pack(self, mixture: Mixture) -> Numbers:
        return np.concatenate([np.ravel(mixture[name]) for name in self._shapes])

    def _unpack(self, v: Numbers) -> Mixture:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes.values()])
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self._shapes.items(), np.split(v, ends[:-1]), strict=True)
        }


def start(x: Numbers, k: int, full: bool, seed: int) -> Mixture:
    """The M-step for the clusters of k-means."""
    labels = (
        require("sklearn.cluster", "the em recipe", "tour")
        .KMeans(k, n_init=1, random_state=seed)
        .fit_predict(x)
    )
    return closed_form(x, np.eye(k)[labels], full)


def fit(
    x: Numbers,
    mixture: Mixture,
    steps: int,
    engine: str = "auto",
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[Mixture, list[float], float]:
    """EM with every M-step solved by gradients.

    Returns:
        the mixture, the log-likelihood after each step, and the worst gradient left.
    """
    maximise = Maximiser(x, mixture, engine)
    both: Callable[..., Any] = sg.function(
        lambda x, m: (responsibilities(x, m), log_likelihood(x, m)), engine=engine
    )
    trace, worst = [], 0.0
    for step in range(steps):
        r, value = both(x, mixture)
        trace.append(float(value))
        mixture, left = maximise(mixture, r, 1e-6)
        worst = max(worst, left)
        progress((step + 1) / steps)
    return mixture, [*trace, float(both(x, mixture)[1])], worst


# ----------------------------------------------------------------------------------------- experiment

STEPS = 25


def run(seed: int = 0, engine: str = "auto", progress: Progress = silent) -> Result:
    """Fit Iris and digits, diagonal and full, beside scikit-learn's GaussianMixture from the same start."""
    progress(0.0, "loading Iris and digits")
    tasks = {
        f"{name}, {kind}": (*data, kind == "full")
        for name, data in _data(seed).items()
        for kind in ("diagonal", "full")
    }
    fits: dict[str, Fit] = {}
    for i, (name, (x, k, classes, full)) in enumerate(tasks.items()):
        part_progress = part(progress, i / len(tasks), (i + 1) / len(tasks), name)
        fits[name] = fit_beside_sklearn(x, k, classes, full, seed, engine, part_progress)
    iris = fits["Iris, full"].x
    with_stop, without = fisher(iris, start(iris, 3, True, seed), engine)
    checks = [
        *(check for name, fit in fits.items() for check in fit.checks(name)),
        Check(
            "gradient of Q with the stop minus that of the log-likelihood (relative)", with_stop, "≤", 1e-10
        ),
        Check("... without the stop it is another direction (relative)", without, "≥", 0.1),
    ]
    graph = _graph(
        em_objective,
        "The EM objective",
        "The E-step stands in the same graph; the stop hides it from the generator.",
    )
    progress(1.0, "done")
    return Result(
        "em",
        "Expectation maximisation",
        "One stop makes the gradient of the expected log-likelihood EM's: "
        "solved to its optimum it is the textbook's M-step, and the likelihood never falls.",
        checks,
        [_table(fits)],
        [_iris_picture(fits), _trace_picture(fits), _digits_picture(fits, seed)],
        [graph],
        [log_joint, responsibilities, expected_log_likelihood, em_objective],
    )


@dataclass(frozen=True)
class Fit:
    """One data set fitted with one kind of covariance, and what that is compared with."""

    x: Numbers
    mixture: Mixture
    trace: list[float]
    """The log-likelihood before each step and after the last."""
    error: float
    """How far the first M-step is from the closed form."""
    left: float
    """The largest component of a gradient that an M-step left."""
    reference: float
    """The log-likelihood that scikit-learn reaches."""
    classes: Numbers

    def checks(self, name: str) -> list[Check]:
        gain, ahead = float(np.diff(self.trace).min()), self.trace[-1] - self.reference
        claim = "one M-step by gradient minus the closed form, largest difference"
        return [
            Check(f"{name}: {claim}", self.error, "≤", 1e-6),
            Check(f"{name}: smallest step of the log-likelihood", gain, "≥", -1e-12),
            Check(f"{name}: mean log-likelihood minus scikit-learn's", ahead, "≥", -1e-3),
        ]

    def row(self, name: str) -> list[str]:
        """The fit as a row of the table."""
        clusters = np.asarray(responsibilities(self.x, self.mixture)).argmax(axis=1)
        return [
            name,
            f"{len(self.x)} × {self.x.shape[1]}",
            str(len(self.mixture["mean"])),
            f"{self.error:.0e}",
            f"{self.left:.0e}",
            f"{self.trace[-1]:.6f}",
            f"{self.reference:.6f}",
            f"{agreement(clusters, self.classes):.1%}",
        ]


def fit_beside_sklearn(
    x: Numbers,
    k: int,
    classes: Numbers,
    full: bool,
    seed: int,
    engine: str,
    progress: Callable[[float], None],
) -> Fit:
    """k components fitted to x from the clusters of k-means, by this library and by scikit-learn."""
    first = start(x, k, full, seed)
    error = m_step_error(x, first, full, engine)
    mixture, trace, left = fit(x, first, STEPS, engine, progress)
    return Fit(x, mixture, trace, error, left, sklearn_score(x, first, full, STEPS), classes)


def _table(fits: dict[str, Fit]) -> Table:
    header = [
        "data, covariance",
        "points",
        "components",
        "M-step error",
        "gradient left",
        "log-likelihood",
        "scikit-learn",
        "in the right class",
    ]
    title = f"{STEPS} EM steps from the clusters of k-means, M-steps by Newton's method"
    return Table(title, header, [fit.row(name) for name, fit in fits.items()])


def _data(seed: int) -> dict[str, tuple[Numbers, int, Numbers]]:
    datasets = require("sklearn.datasets", "the em recipe", "tour")
    iris, digits = datasets.load_iris(), datasets.load_digits()
    components = _pca(seed).fit_transform(digits.data)
    return {"Iris": (iris.data, 3, iris.target), "digits": (components / components.std(), 10, digits.target)}


def _pca(seed: int) -> Any:
    return require("sklearn.decomposition", "the em recipe", "tour").PCA(6, random_state=seed)


def m_step_error(x: Numbers, mixture: Mixture, full: bool, engine: str = "auto") -> float:
    """The largest difference, in weights and moments, of one M-step by gradients from the closed form."""
    r = np.asarray(responsibilities(x, mixture))
    solved, _ = Maximiser(x, mixture, engine)(mixture, r)
    pairs = zip(weights_and_moments(solved), weights_and_moments(closed_form(x, r, full)), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def sklearn_score(x: Numbers, mixture: Mixture, full: bool, steps: int) -> float:
    """The mean log-likelihood that scikit-learn reaches from the same start in as many steps."""
    library = require("sklearn.mixture", "the em recipe", "tour")
    weights, means, covariances = weights_and_moments(mixture)
    precisions = np.linalg.inv(covariances)
    if not full:
        precisions = np.diagonal(precisions, axis1=1, axis2=2)
    kind = "full" if full else "diag"
    peer = library.GaussianMixture(
        len(weights),
        covariance_type=kind,
        weights_init=weights,
        means_init=means,
        precisions_init=precisions,
        max_iter=steps,
        tol=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That it did not converge: a number of steps was asked for.
        return float(peer.fit(x).score(x))


def agreement(clusters: Numbers, classes: Numbers) -> float:
    """The share of points in the right class, under the best naming of components."""
    counts = np.zeros((clusters.max() + 1, classes.max() + 1))
    np.add.at(counts, (clusters, classes), 1)
    rows, columns = require("scipy.optimize", "the em recipe", "tour").linear_sum_assignment(-counts)
    return float(counts[rows, columns].sum() / len(clusters))


def fisher(x: Numbers, mixture: Mixture, engine: str = "auto") -> tuple[float, float]:
    """Fisher's identity: how far Q's gradient, with and without the stop, is from the log-likelihood's."""

    def gradient(f: Callable[[Array, Mixture], Array]) -> Numbers:
        gradients = sg.function(sg.grad(f, argnums=1), engine=engine)(x, mixture)
        return np.concatenate([np.ravel(gradients[name]) for name in sorted(gradients)])

    truth = gradient(log_likelihood)

    def distance(f: Callable[[Array, Mixture], Array]) -> float:
        return float(np.linalg.norm(gradient(f) - truth) / np.linalg.norm(truth))

    return distance(em_objective), distance(em_objective_without_stop)


def _graph(objective: Callable[[Array, Mixture], Array], title: str, note: str) -> LossGraph:
    example = {"logit": np.zeros(3), "mean": np.zeros((3, 2)), "log_diagonal": np.zeros((3, 2))}
    return differentiate(title, note, lambda mixture, x: objective(x, mixture), example, x=np.zeros((5, 2)))


# ------------------------------------------------------------------------------------------- pictures


def _iris_picture(fits: dict[str, Fit]) -> Picture:
    figure, axes = plots.figure(1, 2, size=(7.6, 3.2), sharey=True)
    for ax, kind in zip(axes[0], ("diagonal", "full"), strict=True):
        fit = fits[f"Iris, {kind}"]
        _, means, covariances = weights_and_moments(fit.mixture)
        plots.scatter(ax, fit.x[:, 2:], fit.classes)
        for mean, covariance in zip(means, covariances, strict=True):
            plots.ellipse(ax, mean[2:], covariance[2:, 2:])
        ax.set(xlabel="petal length, cm")
        ax.set_title(f"{kind} covariance", fontsize=9.5)
    axes[0, 0].set_ylabel("petal width, cm")
    return Picture(
        "Iris: the colours are the species, which the fit never saw; "
        "the ellipses are its components at two standard deviations.",
        figure,
        wide=True,
    )


def _trace_picture(fits: dict[str, Fit]) -> Picture:
    shown = {name: [fit.trace[-1] - v + 1e-12 for v in fit.trace[:-1]] for name, fit in fits.items()}
    return plots.curves(
        "How far the mean log-likelihood is from its last value: it falls at every step.",
        shown,
        "EM step",
        "still to gain",
        log=True,
    )


def _digits_picture(fits: dict[str, Fit], seed: int) -> Picture:
    digits = require("sklearn.datasets", "the em recipe", "tour").load_digits()
    pca = _pca(seed)
    scale = pca.fit_transform(digits.data).std()
    rows = {
        kind: pca.inverse_transform(fits[f"digits, {kind}"].mixture["mean"] * scale) / 16.0
        for kind in ("diagonal", "full")
    }
    return plots.images(
        "Digits: the means of the ten components, taken back from 6 principal components to pixels.", rows
    )
