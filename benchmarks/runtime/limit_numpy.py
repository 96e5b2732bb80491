"""The rows in NumPy, gradients derived by hand: no tape, no compiler, one array after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from runtime.problems import ATTACKS, EPSILON, RATE, REACH, STRIDE, Data

Call = Callable[[], Any]


def softmax_loss(x: Any, w: Any) -> Any:
    p = x - x.max(axis=-1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=-1, keepdims=True)
    expected = np.einsum("ij,ij->i", w, p)[:, None]
    gradient = w - expected
    gradient *= p
    return expected.sum(), gradient


def cross_entropy(x: Any, labels: Any) -> Any:
    rows = np.arange(len(x))
    z = x - x.max(axis=-1, keepdims=True)
    chosen = z[rows, labels]
    np.exp(z, out=z)
    total = z.sum(axis=-1, keepdims=True)
    loss = np.mean(np.log(total[:, 0]) - chosen)
    z *= 1.0 / (total * len(x))
    z[rows, labels] -= np.float32(1.0 / len(x))
    return loss, z


def forward(params: Any, x: Any) -> list[Any]:
    """What goes into each layer, and the last result."""
    found = [x]
    for i, layer in enumerate(params):
        x = x @ layer["w"] + layer["b"]
        if i < len(params) - 1:
            np.maximum(x, 0.0, out=x)
        found.append(x)
    return found


def back(params: Any, i: int, slope: Any, inputs: Any) -> Any:
    slope = slope @ params[i]["w"].T
    return slope * (inputs[i] > 0) if i else slope


def mlp(params: Any, x: Any, labels: Any) -> Any:
    *inputs, y = forward(params, x)
    loss, slope = cross_entropy(y, labels)
    new: list[Any] = []
    for i in reversed(range(len(params))):
        w, b = params[i]["w"], params[i]["b"]
        new.insert(0, {"w": w - RATE * (inputs[i].T @ slope), "b": b - RATE * slope.sum(axis=0)})
        if i:
            slope = back(params, i, slope, inputs)
    return loss, new


def pgd(params: Any, x: Any, labels: Any) -> Any:
    low, high = np.maximum(x - REACH, 0.0), np.minimum(x + REACH, 1.0)
    found = x
    for _ in range(ATTACKS):
        *inputs, y = forward(params, found)
        _, slope = cross_entropy(y, labels)
        for i in reversed(range(len(params))):
            slope = back(params, i, slope, inputs)
        found = np.clip(found + STRIDE * np.sign(slope), low, high)
    return mlp(params, found, labels)


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def rbm(params: Any, v: Any, rng: Any) -> Any:
    w, a, b = params["w"], params["a"], params["b"]

    def drawn(p: Any) -> Any:
        return (rng.random(p.shape, np.float32) < p).astype(np.float32)

    def free_energy(v: Any, z: Any) -> Any:
        return -(v @ a).mean() - np.logaddexp(0.0, z).sum(axis=-1).mean()

    z = v @ w + b
    sample = drawn(sigmoid(drawn(sigmoid(z)) @ w.T + a))
    z_of_sample = sample @ w + b
    loss = free_energy(v, z) - free_energy(sample, z_of_sample)
    h, h_of_sample = sigmoid(z), sigmoid(z_of_sample)
    scale = RATE / len(v)
    return loss, {
        "w": w - scale * (sample.T @ h_of_sample - v.T @ h),
        "a": a - RATE * (sample.mean(axis=0) - v.mean(axis=0)),
        "b": b - RATE * (h_of_sample.mean(axis=0) - h.mean(axis=0)),
    }


def mixture(params: Any, x: Any) -> Any:
    """The squares written as products: what the row asks for as differences."""
    mean, inverse = params["mean"], np.exp(-2.0 * params["log_scale"])
    shift = x.mean(axis=0)
    centred, mean = x - shift, mean - shift
    squares = centred * centred
    distance = (
        squares @ inverse.T - 2.0 * (centred @ (mean * inverse).T) + (mean * mean * inverse).sum(axis=-1)
    )
    logit = params["logit"] - np.logaddexp.reduce(params["logit"])
    log_p = logit - 0.5 * distance - params["log_scale"].sum(axis=-1)
    r = log_p - log_p.max(axis=-1, keepdims=True)
    np.exp(r, out=r)
    r /= r.sum(axis=-1, keepdims=True)
    loss = -np.vdot(r, log_p) / len(x)
    count, first, second = r.sum(axis=0)[:, None], r.T @ centred, r.T @ squares
    spread = (second - 2.0 * mean * first + count * mean * mean) * inverse
    return loss, {
        "logit": np.exp(logit) - count[:, 0] / len(x),
        "log_scale": (count - spread) / len(x),
        "mean": -(first - count * mean) * inverse / len(x),
    }


def lstm(params: Any, x: Any, targets: Any) -> Any:
    w, u, b = params["w"], params["u"], params["b"]
    steps, batch, width = targets.shape
    h = c = np.zeros((batch, width), np.float32)
    gates, cells, states = (x @ w + b), [c], [h]
    for t in range(steps):
        z = gates[t]
        z += h @ u
        i, f, g, o = (z[:, k * width : (k + 1) * width] for k in range(4))
        i[:], f[:], g[:], o[:] = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        c = f * c + i * g
        h = o * np.tanh(c)
        cells.append(c)
        states.append(h)
    slopes = (np.stack(states[1:]) - targets) * np.float32(2.0 / targets.size)
    dh = dc = np.zeros((batch, width), np.float32)
    loss, dz = np.mean((np.stack(states[1:]) - targets) ** 2), np.empty_like(gates)
    for t in reversed(range(steps)):
        i, f, g, o = (gates[t][:, k * width : (k + 1) * width] for k in range(4))
        squashed = np.tanh(cells[t + 1])
        dh = dh + slopes[t]
        dc = dc + dh * o * (1.0 - squashed * squashed)
        parts = (
            dc * g * i * (1 - i),
            dc * cells[t] * f * (1 - f),
            dc * i * (1 - g * g),
            dh * squashed * o * (1 - o),
        )
        np.concatenate(parts, axis=-1, out=dz[t])
        dc, dh = dc * f, dz[t] @ u.T
    flat = dz.reshape(steps * batch, -1)
    before = np.stack(states[:-1]).reshape(steps * batch, width)
    return loss, {"w": x.reshape(steps * batch, -1).T @ flat, "u": before.T @ flat, "b": flat.sum(axis=0)}


ROOT = np.float32((2 / np.pi) ** 0.5)


def norms(params: Any, w: Any) -> Any:
    x, kept = params["x"], []
    for scale, offset in zip(params["scales"], params["offsets"], strict=True):
        x = x - x.mean(axis=-1, keepdims=True)
        deviation = 1.0 / np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / x.shape[-1] + EPSILON)
        x *= deviation
        y = x * scale + offset
        t = np.tanh(ROOT * (y + 0.044715 * y * y * y))
        kept.append((x, deviation, y, t))
        x = 0.5 * y * (1.0 + t)
    loss, slope = np.vdot(w, x) / w.size, w * np.float32(1.0 / w.size)
    scales: list[Any] = []
    offsets: list[Any] = []
    for (x, deviation, y, t), scale in zip(reversed(kept), reversed(params["scales"]), strict=True):
        slope = slope * (0.5 * (1.0 + t) + 0.5 * y * (1.0 - t * t) * ROOT * (1.0 + 0.134145 * y * y))
        scales.insert(0, np.einsum("ij,ij->j", slope, x))
        offsets.insert(0, slope.sum(axis=0))
        slope = slope * scale
        along = np.einsum("ij,ij->i", slope, x)[:, None] / x.shape[-1]
        slope = deviation * (slope - slope.mean(axis=-1, keepdims=True) - x * along)
    return loss, {"x": slope, "scales": scales, "offsets": offsets}


def deep(params: Any, x: Any) -> Any:
    found = [x]
    for layer in params:
        found.append(np.tanh(found[-1] @ layer["w"] + layer["b"]))
    loss, slope = np.mean(found[-1] ** 2), found[-1] * np.float32(2.0 / found[-1].size)
    gradients: list[Any] = []
    for layer, before, after in zip(reversed(params), reversed(found[:-1]), reversed(found[1:]), strict=True):
        slope = slope * (1.0 - after * after)
        gradients.append({"w": before.T @ slope, "b": slope.sum(axis=0)})
        slope = slope @ layer["w"].T
    return loss, gradients[::-1]


def add_up(*arguments: Any) -> Any:
    total = arguments[0]
    for x in arguments[1:]:
        total = total + x
    return total * np.float32(2.0)


class Library:
    """NumPy."""

    unwritten = "a stand-in, written by hand where it shows what the machine can do"

    def __init__(self, variant: str, device: str) -> None:
        self.version = np.__version__

    def touch(self) -> None:
        np.ones((2, 2)) @ np.ones((2, 2))

    to_numpy = staticmethod(np.asarray)

    def __getattr__(self, kind: str) -> Callable[[Data], Call]:
        """The function of that name, of all the data in the order in which they stand."""
        if kind == "deep_scan":
            return self.__getattr__("deep")
        if kind not in ("softmax_loss", "cross_entropy", "mlp", "pgd", "mixture", "lstm", "norms", "deep"):
            raise AttributeError(kind)
        f = globals()[kind]
        return lambda data: lambda: f(*data.values())

    def rbm(self, data: Data) -> Call:
        rng = np.random.default_rng(0)
        return lambda: rbm(data["params"], data["v"], rng)

    def call(self, data: Data) -> Call:
        arguments = data["arguments"]
        if isinstance(arguments[0], dict):
            return lambda: add_up(*arguments[0].values())
        return lambda: add_up(*arguments)
