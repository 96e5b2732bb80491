"""The rows in PyTorch: eager, or with the loss under ``torch.compile``, whose backward pass is then compiled
too.

Losses, norms and attention are torch.nn.functional's, the LSTM is nn.LSTM, images lie in memory with their
channels last, and an attack asks for no gradient of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it

from runtime.problems import ATTACKS, EPSILON, RATE, REACH, STRIDE, Data, LeftOut, leaves, mapped
from runtime.steps_torch import Steps

Call = Callable[[], Any]


def softmax_loss(x: Any, w: Any) -> Any:
    return (w * F.softmax(x, -1)).sum()


def mlp_loss(params: Any, x: Any, labels: Any) -> Any:
    *hidden, last = params
    for layer in hidden:
        x = torch.relu(torch.addmm(layer["b"], x, layer["w"]))
    return F.cross_entropy(torch.addmm(last["b"], x, last["w"]), labels)


def cnn_loss(params: Any, x: Any, labels: Any) -> Any:
    x = torch.relu(F.conv2d(x, params["conv1"]["w"], params["conv1"]["b"], padding="same"))
    x = torch.relu(F.conv2d(x, params["conv2"]["w"], params["conv2"]["b"], padding="same"))
    x = F.max_pool2d(x, 2)
    return mlp_loss([params["dense1"], params["dense2"]], x.flatten(1), labels)


def free_energy(params: Any, v: Any) -> Any:
    return -(v @ params["a"]) - F.softplus(v @ params["w"] + params["b"]).sum(-1)


def contrastive_divergence(params: Any, v: Any) -> Any:
    with torch.no_grad():
        h = torch.bernoulli(torch.sigmoid(v @ params["w"] + params["b"]))
        sample = torch.bernoulli(torch.sigmoid(h @ params["w"].T + params["a"]))
    return free_energy(params, v).mean() - free_energy(params, sample).mean()


def mixture_loss(params: Any, x: Any) -> Any:
    z = (x[:, None] - params["mean"]) / torch.exp(params["log_scale"])
    log_p = F.log_softmax(params["logit"], -1) - 0.5 * (z * z).sum(-1) - params["log_scale"].sum(-1)
    r = torch.softmax(log_p, -1).detach()
    return -(r * log_p).sum(-1).mean()


def norm(x: Any, layer: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], layer["scale"], layer["offset"], EPSILON)


def attention(x: Any, layer: Any, heads: int) -> Any:
    batch, length, width = x.shape

    def split(name: str) -> Any:
        return (x @ layer[name]).view(batch, length, heads, width // heads).transpose(1, 2)

    mixed = F.scaled_dot_product_attention(split("query"), split("key"), split("value"), is_causal=True)
    return mixed.transpose(1, 2).reshape(batch, length, width) @ layer["out"]


def transformer_loss(params: Any, x: Any, labels: Any, heads: int) -> Any:
    h = F.embedding(x, params["words"]) + params["places"]
    for layer in params["layers"]:
        h = h + attention(norm(h, layer["norm1"]), layer, heads)
        h = h + F.gelu(norm(h, layer["norm2"]) @ layer["up"], approximate="tanh") @ layer["down"]
    return F.cross_entropy((h @ params["head"]).flatten(0, 1), labels.flatten())


def norms_loss(params: Any, w: Any) -> Any:
    x = params["x"]
    for scale, offset in zip(params["scales"], params["offsets"], strict=True):
        x = F.gelu(F.layer_norm(x, x.shape[-1:], scale, offset, EPSILON), approximate="tanh")
    return (w * x).mean()


def deep_loss(params: Any, x: Any) -> Any:
    for layer in params:
        x = torch.tanh(torch.addmm(layer["b"], x, layer["w"]))
    return (x * x).mean()


def add_up(*arguments: Any) -> Any:
    total = arguments[0]
    for x in arguments[1:]:
        total = total + x
    return total * 2.0


def add_up_dict(arguments: Any) -> Any:
    return add_up(*arguments.values())


class Library(Steps):
    """PyTorch, eager or compiled."""

    def __init__(self, variant: str, device: str) -> None:
        self.version = torch.__version__
        if device == "gpu" and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        self.device = "cuda" if device == "gpu" else "cpu"
        self.compiled = variant == "compile"

    def touch(self) -> None:
        (self._place(np.ones(2, np.float32)) + 1.0).sum()

    @staticmethod
    def to_numpy(x: Any) -> Any:
        return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)

    def _place(self, x: Any) -> Any:
        placed = torch.tensor(x, device=self.device)
        return placed.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else placed

    def _trained(self, x: Any) -> Any:
        return self._place(x).requires_grad_()

    def _f(self, f: Any) -> Any:
        return torch.compile(f, dynamic=False) if self.compiled else f

    def _waited(self, call: Call) -> Call:
        if self.device == "cpu":
            return call

        def and_wait() -> Any:
            found = call()
            torch.cuda.synchronize()
            return found

        return and_wait

    def _gradient(self, loss: Any, trained: Any, *batch: Any) -> Call:
        """Value and gradient of loss(trained, *batch)."""
        f, trained = self._f(loss), mapped(self._trained, trained)
        flat, batch = list(leaves(trained)), mapped(self._place, list(batch))

        def call() -> Any:
            value = f(trained, *batch)
            return value, torch.autograd.grad(value, flat)

        return self._waited(call)

    def _step(self, loss: Any, trained: Any, *batch: Any) -> Call:
        f, old = self._f(loss), trained
        trained, batch = mapped(self._trained, trained), mapped(self._place, list(batch))
        call = self._waited(lambda: self._update(f, trained, *batch))
        call.old = old  # type: ignore[attr-defined]
        return call

    @staticmethod
    def _update(f: Any, trained: Any, *batch: Any) -> Any:
        value, flat = f(trained, *batch), list(leaves(trained))
        gradients = torch.autograd.grad(value, flat)
        with torch.no_grad():
            return value, torch._foreach_sub(flat, gradients, alpha=RATE)

    def softmax_loss(self, data: Data) -> Call:
        return self._gradient(softmax_loss, data["x"], data["w"])

    def cross_entropy(self, data: Data) -> Call:
        return self._gradient(F.cross_entropy, data["x"], data["labels"].astype(np.int64))

    def mlp(self, data: Data) -> Call:
        return self._step(mlp_loss, data["params"], data["x"], data["labels"].astype(np.int64))

    def cnn(self, data: Data) -> Call:
        params = {**data["params"]}
        for name in ("conv1", "conv2"):
            params[name] = {"w": np.transpose(params[name]["w"], (3, 2, 0, 1)), "b": params[name]["b"]}
        side = data["x"].shape[1] // 2
        w = (
            params["dense1"]["w"]
            .reshape(side, side, 64, -1)
            .transpose(2, 0, 1, 3)
            .reshape(side * side * 64, -1)
        )
        params["dense1"] = {"w": np.ascontiguousarray(w), "b": params["dense1"]["b"]}
        x = np.transpose(data["x"], (0, 3, 1, 2))
        return self._step(cnn_loss, params, x, data["labels"].astype(np.int64))

    def rbm(self, data: Data) -> Call:
        torch.manual_seed(0)
        return self._step(contrastive_divergence, data["params"], data["v"])

    def mixture(self, data: Data) -> Call:
        return self._gradient(mixture_loss, data["params"], data["x"])

    def pgd(self, data: Data) -> Call:
        loss, params = self._f(mlp_loss), mapped(self._trained, data["params"])
        fixed = mapped(torch.Tensor.detach, params)
        x, labels = self._place(data["x"]), self._place(data["labels"].astype(np.int64))

        def call() -> Any:
            found = x
            for _ in range(ATTACKS):
                found = found.detach().requires_grad_()
                (slope,) = torch.autograd.grad(loss(fixed, found, labels), found)
                with torch.no_grad():
                    found = torch.clamp(found + STRIDE * slope.sign(), x - REACH, x + REACH).clamp(0.0, 1.0)
            return self._update(loss, params, found, labels)

        return self._waited(call)

    def call(self, data: Data) -> Call:
        f = self._f(add_up_dict if isinstance(data["arguments"][0], dict) else add_up)
        arguments = data["arguments"]
        if data["kind"] == "own":
            placed = mapped(self._place, arguments)
            return self._waited(lambda: f(*placed))
        if self.device == "cuda":
            return lambda: f(*mapped(self._place, arguments)).cpu().numpy()
        if isinstance(arguments[0], dict):
            (given,) = arguments
            return lambda: f({k: torch.from_numpy(x) for k, x in given.items()}).numpy()
        return lambda: f(*[torch.from_numpy(x) for x in arguments]).numpy()

    def session(self, data: Data) -> Call:
        raise LeftOut("no sessions")

    def transformer(self, data: Data) -> Call:
        heads = data["heads"]
        loss = lambda params, x, labels: transformer_loss(params, x, labels, heads)
        return self._step(loss, data["params"], data["x"].astype(np.int64), data["labels"].astype(np.int64))

    def lstm(self, data: Data) -> Call:
        params, (_, _, inputs), width = data["params"], data["x"].shape, data["targets"].shape[-1]
        cell = torch.nn.LSTM(inputs, width).to(self.device)
        with torch.no_grad():
            cell.weight_ih_l0.copy_(self._place(params["w"].T.copy()))
            cell.weight_hh_l0.copy_(self._place(params["u"].T.copy()))
            cell.bias_ih_l0.copy_(self._place(params["b"]))
            cell.bias_hh_l0.zero_()
        x, targets = self._place(data["x"]), self._place(data["targets"])
        loss = self._f(lambda x, targets: F.mse_loss(cell(x)[0], targets))
        flat = [cell.bias_ih_l0, cell.weight_hh_l0, cell.weight_ih_l0]

        def call() -> Any:
            value = loss(x, targets)
            return value, torch.autograd.grad(value, flat)

        return self._waited(call)

    def norms(self, data: Data) -> Call:
        return self._gradient(norms_loss, data["params"], data["w"])

    def deep(self, data: Data) -> Call:
        if self.compiled and len(data["params"]) > 100:
            raise LeftOut("compiles for many minutes")
        return self._gradient(deep_loss, data["params"], data["x"])

    deep_scan = deep
