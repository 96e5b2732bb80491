"""The training steps in PyTorch, with torch.nn.functional's losses and norms, and fused optimisers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it

from runtime.problems import LeftOut, leaves, mapped
from runtime.steps import ADAM, COMMIT, DISCOUNT, FOLLOW, MOMENTUM, SETTLE, TEMPERATURE, Data

Call = Callable[[], Any]


def mlp(layers: Any, x: Any) -> Any:
    *hidden, last = layers
    for layer in hidden:
        x = torch.relu(torch.addmm(layer["b"], x, layer["w"]))
    return torch.addmm(last["b"], x, last["w"])


def small_mlp_loss(params: Any, x: Any, y: Any) -> Any:
    return F.mse_loss(mlp(params, x), y)


def drawn(actor: Any, observed: Any, noise: Any) -> Any:
    mean, log_std = mlp(actor, observed).chunk(2, dim=-1)
    log_std = log_std.clamp(-5.0, 2.0)
    action = torch.tanh(mean + log_std.exp() * noise)
    log_p = -0.5 * noise**2 - log_std - 0.9189385 - torch.log(1.0 - action**2 + 1e-6)
    return action, log_p.sum(-1, keepdim=True)


def valued(critics: Any, observed: Any, action: Any) -> Any:
    return [mlp(critic, torch.cat([observed, action], -1)) for critic in critics]


def sac_loss(params: Any, target: Any, *batch: Any) -> Any:
    observed, action, reward, after, noise, next_noise = batch
    alpha = params["log_alpha"].detach().exp()
    with torch.no_grad():
        next_action, next_log_p = drawn(params["actor"], after, next_noise)
        future = torch.minimum(*valued(target, after, next_action)) - alpha * next_log_p
        aim = reward + DISCOUNT * future
    critic = sum(F.mse_loss(q, aim) for q in valued(params["critics"], observed, action))
    found, log_p = drawn(params["actor"], observed, noise)
    fixed = [[{k: x.detach() for k, x in layer.items()} for layer in net] for net in params["critics"]]
    worth = torch.minimum(*valued(fixed, observed, found))
    actor = (alpha * log_p - worth).mean()
    entropy = log_p.detach() - float(noise.shape[-1])
    return critic + actor - (params["log_alpha"] * entropy).mean()


def vqvae_loss(params: Any, x: Any) -> Any:
    first, second, last = params["down"]
    h = torch.relu(F.conv2d(x, first["w"], first["b"], 2, 1))
    h = torch.relu(F.conv2d(h, second["w"], second["b"], 2, 1))
    z = F.conv2d(h, last["w"], last["b"]).permute(0, 2, 3, 1)
    codes = params["codes"]
    flat = z.reshape(-1, z.shape[-1])
    distances = flat.square().sum(-1, keepdim=True) - 2.0 * flat @ codes.T + codes.square().sum(-1)
    q = F.embedding(distances.argmin(-1), codes).view(z.shape)
    codebook, commitment = F.mse_loss(q, z.detach()), F.mse_loss(z, q.detach())
    h = (z + (q - z).detach()).permute(0, 3, 1, 2)
    up, out = params["up"]
    h = torch.relu(F.conv_transpose2d(h, up["w"], up["b"], 2, 1))
    made = F.conv_transpose2d(h, out["w"], out["b"], 2, 1)
    return F.mse_loss(made, x) + codebook + COMMIT * commitment


def batch_norm(x: Any, layer: Any) -> Any:
    return F.batch_norm(x, None, None, layer["scale"], layer["offset"], training=True)


def projected(params: Any, x: Any) -> Any:
    first, second = params["convolutions"]
    x = torch.relu(batch_norm(F.conv2d(x, first["w"], padding=1), first))
    # "SAME" with stride 2: one row and column after the image, none before it.
    x = torch.relu(batch_norm(F.conv2d(F.pad(x, (0, 1, 0, 1)), second["w"], stride=2), second))
    x = x.mean((2, 3))
    first, second = params["projector"]
    return batch_norm(torch.relu(batch_norm(x @ first["w"], first)) @ second["w"], second)


def predicted(params: Any, z: Any) -> Any:
    first, second = params["predictor"]
    return torch.addmm(second["b"], torch.relu(batch_norm(z @ first["w"], first)), second["w"])


def simsiam_loss(params: Any, one: Any, other: Any) -> Any:
    z1, z2 = projected(params, one), projected(params, other)
    p1, p2 = predicted(params, z1), predicted(params, z2)
    alike = F.cosine_similarity(p1, z2.detach()).mean() + F.cosine_similarity(p2, z1.detach()).mean()
    return -0.5 * alike


def info_nce_loss(params: Any, one: Any, other: Any) -> Any:
    a, b = F.normalize(mlp(params[0], one), dim=-1), F.normalize(mlp(params[1], other), dim=-1)
    logits, right = a @ b.T / TEMPERATURE, torch.arange(len(a))
    return 0.5 * (F.cross_entropy(logits, right) + F.cross_entropy(logits.T, right))


def deq_loss(params: Any, x: Any, labels: Any) -> Any:
    fed = torch.addmm(params["b"], x, params["u"])
    with torch.no_grad():
        z = torch.zeros_like(fed)
        for _ in range(SETTLE):
            z = torch.tanh(torch.addmm(fed, z, params["w"]))
    z = torch.tanh(torch.addmm(fed, z, params["w"]))
    return F.cross_entropy(torch.addmm(params["head"]["b"], z, params["head"]["w"]), labels)


def gpt_loss(params: Any, x: Any, labels: Any, heads: int) -> Any:
    batch, length = x.shape

    def norm(h: Any, layer: Any) -> Any:
        return F.layer_norm(h, h.shape[-1:], layer["scale"], layer["offset"])

    def dense(h: Any, layer: Any) -> Any:
        return torch.addmm(layer["b"], h.flatten(0, 1), layer["w"]).view(batch, length, -1)

    h = F.embedding(x, params["words"]) + params["places"]
    for block in params["blocks"]:
        parts = dense(norm(h, block["norm1"]), block["qkv"]).chunk(3, -1)
        q, k, v = (part.view(batch, length, heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(h.shape)
        h = h + dense(mixed, block["out"])
        h = h + dense(F.gelu(dense(norm(h, block["norm2"]), block["up"]), approximate="tanh"), block["down"])
    logits = dense(norm(h, params["norm"]), params["head"])
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, ADAM, fused=True)


def first_channels(params: Any, *names: str) -> Any:
    """The filters of convolutions as PyTorch has them: channels before height and width."""
    changed = {**params}
    for name in names:
        changed[name] = [{**layer, "w": np.transpose(layer["w"], (3, 2, 0, 1))} for layer in params[name]]
    return changed


def images(x: Any) -> Any:
    return np.transpose(x, (0, 3, 1, 2))


class Steps:
    """What PyTorch has for the training steps."""

    compiled: bool
    _f: Callable[..., Any]
    _place: Callable[..., Any]
    _trained: Callable[..., Any]
    _waited: Callable[..., Any]

    def _steps(self, loss: Any, optimizer: Any, params: Any, batch: Any, after: Any = None) -> Call:
        """A call is a step from what the last one left."""
        trained = mapped(self._trained, params)
        f, moves = self._f(loss), optimizer(list(leaves(trained)))
        placed = [self._place(x.astype(np.int64) if x.dtype == np.int32 else x) for x in batch]

        def call() -> Any:
            moves.zero_grad()
            value = f(trained, *placed)
            value.backward()
            moves.step()
            if after is not None:
                after(trained)
            return value.detach()

        return self._waited(call)

    def sac(self, data: Data) -> Call:
        target = mapped(self._place, data["params"]["critics"])

        def follow(trained: Any) -> None:
            with torch.no_grad():
                torch._foreach_lerp_(list(leaves(target)), list(leaves(trained["critics"])), FOLLOW)

        loss = lambda params, *batch: sac_loss(params, target, *batch)
        return self._steps(loss, adam, data["params"], data["batch"], follow)

    def vqvae(self, data: Data) -> Call:
        params = first_channels(data["params"], "down", "up")
        return self._steps(vqvae_loss, adam, params, [images(x) for x in data["batch"]])

    def simsiam(self, data: Data) -> Call:
        sgd = lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=MOMENTUM, fused=True)
        params = first_channels(data["params"], "convolutions")
        return self._steps(simsiam_loss, sgd, params, [images(x) for x in data["batch"]])

    def info_nce(self, data: Data) -> Call:
        return self._steps(info_nce_loss, adam, data["params"], data["batch"])

    def deq(self, data: Data) -> Call:
        return self._steps(deq_loss, adam, data["params"], data["batch"])

    def gru(self, data: Data) -> Call:
        params, (x, targets) = data["params"], data["batch"]
        cell = torch.nn.GRU(x.shape[-1], targets.shape[-1])
        with torch.no_grad():
            cell.weight_ih_l0.copy_(torch.from_numpy(params["w"].T))
            cell.weight_hh_l0.copy_(torch.from_numpy(params["u"].T))
            cell.bias_ih_l0.copy_(torch.from_numpy(params["b"]))
            cell.bias_hh_l0.zero_()
        cell.bias_hh_l0.requires_grad_(False)
        moves = adam([p for p in cell.parameters() if p.requires_grad])
        loss = self._f(lambda x, targets: F.mse_loss(cell(x)[0], targets))
        x, targets = self._place(x), self._place(targets)

        def call() -> Any:
            moves.zero_grad()
            value = loss(x, targets)
            value.backward()
            moves.step()
            return value.detach()

        return self._waited(call)

    def gpt(self, data: Data) -> Call:
        heads = data["heads"]
        adamw = lambda parameters: torch.optim.AdamW(parameters, ADAM, weight_decay=1e-2, fused=True)
        loss = lambda params, x, labels: gpt_loss(params, x, labels, heads)
        return self._steps(loss, adamw, data["params"], data["batch"])

    def small_mlp_device(self, data: Data) -> Call:
        return self._steps(small_mlp_loss, adam, data["params"], data["batch"])

    def small_mlp_numpy(self, data: Data) -> Call:
        raise LeftOut("its optimisers keep their tensors")

    def small_mlp_session(self, data: Data) -> Call:
        """PyTorch has no sessions: parameters stay with it, batches are NumPy arrays, the loss a number."""
        trained = mapped(self._trained, data["params"])
        f, moves, batch = self._f(small_mlp_loss), adam(list(leaves(trained))), data["batch"]

        def call() -> Any:
            moves.zero_grad()
            value = f(trained, *map(torch.from_numpy, batch))
            value.backward()
            moves.step()
            return np.float32(value.item())

        return call

    def chain(self, data: Data) -> Call:
        if self.compiled:
            raise LeftOut("the row is about what is not compiled")
        x = self._trained(data["x"])

        def call() -> Any:
            y = x
            for _ in range(data["count"]):
                y = torch.tanh(y)
            value = y.mean()
            return value, torch.autograd.grad(value, x)

        return self._waited(call)
