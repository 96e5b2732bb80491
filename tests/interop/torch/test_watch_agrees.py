"""What a watch says of whole training steps is what PyTorch's own backward does, parameter by parameter."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
nn, functional = torch.nn, torch.nn.functional
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint

Step = Callable[[], tuple[Any, dict[str, Any]]]
"""Makes what it needs, runs, and gives a loss and the tensors, or modules, to ask about."""


def leaves(named: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, x in named.items():
        if isinstance(x, nn.Module):
            yield from ((f"{name}.{key}", p) for key, p in x.named_parameters(remove_duplicate=False))
        else:
            yield name, x


def arrived(loss: Any, named: dict[str, Any]) -> dict[str, bool]:
    """Whether a real backward brings a gradient other than zero to each leaf."""
    every = dict(leaves(named))
    for p in every.values():
        p.grad = None
    loss.backward()
    return {name: p.grad is not None and bool((p.grad != 0).any()) for name, p in every.items()}


def mlp() -> Any:
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    return net(torch.randn(5, 4)).square().mean(), {"net": net}


def cnn_with_batch_norm() -> Any:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )
    for _ in range(2):  # The running statistics of the first pass are not read by the second.
        loss = functional.cross_entropy(net(torch.randn(4, 3, 8, 8)), torch.tensor([0, 1, 2, 0]))
    return loss, {"net": net}


def frozen_batch_norm() -> Any:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    net[1].eval()
    net[1].requires_grad_(False)
    return net(torch.randn(5, 4)).square().mean(), {"net": net}


def lstm() -> Any:
    net, head = nn.LSTM(3, 5, num_layers=2, bidirectional=True), nn.Linear(10, 1)
    y, (_, c) = net(torch.randn(7, 2, 3))
    return head(y).square().sum() + c.detach().mean(), {"net": net, "head": head}


def truncated_backpropagation() -> Any:
    cell, first, head = nn.GRUCell(3, 5), nn.Linear(3, 5), nn.Linear(5, 1)
    h = first(torch.randn(2, 3))
    for k in range(6):
        if k % 3 == 0:
            h = h.detach()
        h = cell(torch.randn(2, 3), h)
    return head(h).sum(), {"cell": cell, "first": first, "head": head}


def transformer() -> Any:
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    embedding = nn.Embedding(11, 8)
    y = net(embedding(torch.randint(0, 11, (3, 5))))
    return functional.log_softmax(y, -1).pow(2).mean(), {"net": net, "embedding": embedding}


def attention_with_a_mask() -> Any:
    net = nn.MultiheadAttention(8, 2)
    x = torch.randn(5, 3, 8)
    y, _ = net(x, x, x, attn_mask=torch.triu(torch.full((5, 5), float("-inf")), 1))
    return y.square().sum(), {"net": net}


def generator_step() -> Any:
    generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
    optimizer = torch.optim.Adam(critic.parameters())
    fake = generator(torch.randn(3, 2))
    loss = critic(fake.detach()).mean() - critic(torch.randn(3, 4)).mean()
    loss.backward()
    optimizer.step()
    return -critic(fake).mean(), {"generator": generator, "critic": critic}


def critic_step() -> Any:
    generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
    fake = generator(torch.randn(3, 2)).detach()
    return functional.softplus(critic(fake)).mean(), {"generator": generator, "critic": critic}


def dqn() -> Any:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    target = copy.deepcopy(net)
    q = net(torch.randn(16, 4)).gather(1, torch.randint(0, 2, (16, 1))).squeeze(1)
    with torch.no_grad():
        best = target(torch.randn(16, 4)).max(1).values
        y = torch.rand(16) + 0.9 * best
    return functional.smooth_l1_loss(q, y), {"net": net, "target": target}


def double_dqn() -> Any:
    net, target = nn.Linear(4, 3), nn.Linear(4, 3)
    after = torch.randn(6, 4)
    chosen = net(after).argmax(1, keepdim=True)
    y = target(after).gather(1, chosen).squeeze(1)
    return (net(torch.randn(6, 4))[:, 0] - y.detach()).square().mean(), {"net": net, "target": target}


def simsiam() -> Any:
    encoder = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    predictor = nn.Linear(4, 4)
    z1, z2 = encoder(torch.randn(8, 6)), encoder(torch.randn(8, 6))
    loss = -functional.cosine_similarity(predictor(z1), z2.detach()).mean() / 2
    loss = loss - functional.cosine_similarity(predictor(z2), z1.detach()).mean() / 2
    return loss, {"encoder": encoder, "predictor": predictor}


def byol_with_a_moving_average() -> Any:
    online, target = nn.Linear(6, 4), nn.Linear(6, 4)
    for p in target.parameters():
        p.requires_grad = False
    for _ in range(2):
        loss = (online(torch.randn(3, 6)) - target(torch.randn(3, 6))).square().mean()
        with torch.no_grad():
            for p, q in zip(target.parameters(), online.parameters(), strict=True):
                p.mul_(0.9).add_(q, alpha=0.1)
    return (online(torch.randn(3, 6)) - target(torch.randn(3, 6))).square().mean() + 0 * loss.detach(), {
        "online": online
    }


def vector_quantization() -> Any:
    encoder, decoder, book = nn.Linear(4, 2), nn.Linear(2, 4), nn.Embedding(5, 2)
    x = torch.randn(6, 4)
    z = encoder(x)
    nearest = torch.cdist(z, book.weight).argmin(1)
    quantized = book(nearest)
    codes = (quantized - z.detach()).square().mean() + 0.25 * (quantized.detach() - z).square().mean()
    passed = z + (quantized - z).detach()
    return (decoder(passed) - x).square().mean() + codes, {
        "encoder": encoder, "decoder": decoder, "book": book,
    }  # fmt: skip


def vector_quantization_without_straight_through() -> Any:
    encoder, decoder, book = nn.Linear(4, 2), nn.Linear(2, 4), nn.Embedding(5, 2)
    x = torch.randn(6, 4)
    quantized = book(torch.cdist(encoder(x), book.weight).argmin(1))
    return (decoder(quantized) - x).square().mean(), {"encoder": encoder, "decoder": decoder, "book": book}


def actor_critic() -> Any:
    actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    s = torch.randn(8, 4)
    policy = torch.distributions.Categorical(logits=actor(s))
    action = policy.sample()
    advantage = torch.randn(8) - critic(s).squeeze(1)
    loss = -(policy.log_prob(action) * advantage.detach()).mean() - 0.01 * policy.entropy().mean()
    return loss, {"actor": actor, "critic": critic}


def reparametrized_actor() -> Any:
    actor, critic = nn.Linear(4, 4), nn.Linear(6, 1)
    s = torch.randn(8, 4)
    mean, scale = actor(s).chunk(2, -1)
    action = torch.distributions.Normal(mean, functional.softplus(scale)).rsample()
    return -critic(torch.cat([s, action], -1)).mean(), {"actor": actor, "critic": critic}


def sampled_actor() -> Any:
    actor, critic = nn.Linear(4, 4), nn.Linear(6, 1)
    s = torch.randn(8, 4)
    mean, scale = actor(s).chunk(2, -1)
    action = torch.distributions.Normal(mean, functional.softplus(scale)).sample()
    return -critic(torch.cat([s, action], -1)).mean(), {"actor": actor, "critic": critic}


def maml(create_graph: bool = True) -> Any:
    net, rate = nn.Linear(3, 1), torch.full((), 0.1, requires_grad=True)
    parameters = dict(net.named_parameters())
    inner = torch.func.functional_call(net, parameters, (torch.randn(4, 3),)).square().mean()
    grads = torch.autograd.grad(inner, list(parameters.values()), create_graph=create_graph)
    fast = {k: p - rate * g for (k, p), g in zip(parameters.items(), grads, strict=True)}
    return torch.func.functional_call(net, fast, (torch.randn(4, 3),)).square().mean(), {
        "net": net,
        "rate": rate,
    }


def first_order_maml() -> Any:
    return maml(create_graph=False)


def gradient_penalty(create_graph: bool = True) -> Any:
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(5, 4, requires_grad=True)
    (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=create_graph)
    loss = (g.norm(2, dim=1) - 1).square().mean()
    return loss if create_graph else loss + critic[2].bias.sum(), {"critic": critic}


def gradient_penalty_without_graph() -> Any:
    return gradient_penalty(create_graph=False)


def backward_with_graph() -> Any:
    w, v = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    x = torch.randn(3, requires_grad=True)
    (w * x * x * v).sum().backward(create_graph=True)
    g = x.grad
    x.grad = None
    return g.square().sum(), {"w": w, "v": v}


def checkpointed() -> Any:
    first, inside, last = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 1)
    y = checkpoint(inside, first(torch.randn(2, 3)), use_reentrant=False)
    return last(y).sum(), {"first": first, "inside": inside, "last": last}


def checkpointed_reentrant() -> Any:
    first, inside, last = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 1)
    y = checkpoint(inside, first(torch.randn(2, 3)), use_reentrant=True)
    return last(y).sum(), {"first": first, "inside": inside, "last": last}


def checkpointed_reentrant_with_a_stop_inside() -> Any:
    a, b, last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def inside(x: Any) -> Any:
        with torch.no_grad():
            y = b(x)
        return a(torch.ones(2, 3)) * y + x

    y = checkpoint(inside, nn.Linear(3, 4)(torch.randn(2, 3)), use_reentrant=True)
    return last(y).sum(), {"a": a, "b": b, "last": last}


def in_place_and_views() -> Any:
    w, v, u, dead = [torch.randn(4, requires_grad=True) for _ in range(4)]
    base = w * 2
    row = base[1:3]
    row.mul_(v[:2])
    base[0] = u.sum()
    spare = dead * 3
    spare.zero_()
    buffer = torch.zeros(4)
    buffer[2:] += base[2:]
    return buffer.sum() + base.exp().sum() + spare.sum(), {"w": w, "v": v, "u": u, "dead": dead}


def overwritten() -> Any:
    w, v = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    y = w * 2
    y.copy_(v)
    z = w.sin()
    z[:] = v * 2
    return (y * z).sum(), {"w": w, "v": v}


def written_behind_the_back() -> Any:
    w, v = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    y = w.exp() + 1
    y.data.mul_(v.data)
    z = w.sin()
    with torch.no_grad():
        z += v
    return (y + z).sum(), {"w": w, "v": v}


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, scale: Any) -> Any:
        ctx.save_for_backward(x)
        return (x * scale).clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2, None


def custom_function() -> Any:
    w, scale = torch.randn(4, requires_grad=True), torch.ones(4, requires_grad=True)
    return Clamp.apply(w * 2, scale).sum(), {"w": w, "scale": scale}


def tied_weights() -> Any:
    embedding, out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
    out.weight = embedding.weight
    y = out(embedding(torch.tensor([1, 2, 3])).detach())
    return functional.cross_entropy(y, torch.tensor([0, 1, 2])), {"embedding": embedding, "out": out}


def accumulated_over_steps() -> Any:
    net, other = nn.Linear(3, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*net.parameters(), *other.parameters()], 0.1, momentum=0.9)
    total: Any = 0
    for k in range(3):
        y = net(torch.randn(4, 3))
        loss = other(y.detach() if k == 2 else y).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss
    y = net(torch.randn(4, 3))
    return other(y.detach()).mean() + 0 * total.detach(), {"net": net, "other": other}


def rounding() -> Any:
    w, v, u = [torch.randn(4, requires_grad=True) for _ in range(3)]
    y = torch.round(w * 3) + v + torch.sign(u) * torch.floor(w)
    return (y * (u > 0)).sum() + torch.where(w > 0, v, torch.zeros_like(w)).sum(), {"w": w, "v": v, "u": u}


def wrapped_anew() -> Any:
    w, v = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    p = nn.Parameter(w * 2)
    with pytest.warns(UserWarning, match="copy construct"):
        q = torch.tensor(v * 3)
    return (p * q + v).sum(), {"w": w, "v": v, "p": p}


def by_functions() -> Any:
    w, x = torch.randn(3, requires_grad=True), torch.randn(5, 3)
    each = torch.func.vmap(lambda row: (row * w).sum())(x)
    inner = torch.func.grad(lambda a: (a * a * w).sum())(x[0])
    return each.sum() + inner.sum(), {"w": w}


def mixed_precision() -> Any:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(torch.randn(5, 4))
    return y.float().square().mean(), {"net": net}


def hooks() -> Any:
    net, other = nn.Linear(3, 3), nn.Linear(3, 3)
    net.register_forward_hook(lambda module, args, y: y.detach() + other(args[0]))
    return net(torch.randn(2, 3)).sum(), {"net": net, "other": other}


def normalized_weights() -> Any:
    net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    other = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
    return other(net(torch.randn(2, 3))).square().sum(), {"net": net, "other": other}


STEPS: list[Step] = [
    mlp, cnn_with_batch_norm, frozen_batch_norm, lstm, truncated_backpropagation, transformer,
    attention_with_a_mask,
    generator_step, critic_step, dqn, double_dqn, simsiam, byol_with_a_moving_average, vector_quantization,
    vector_quantization_without_straight_through, actor_critic, reparametrized_actor, sampled_actor, maml,
    first_order_maml, gradient_penalty, gradient_penalty_without_graph, backward_with_graph, checkpointed,
    checkpointed_reentrant, checkpointed_reentrant_with_a_stop_inside, in_place_and_views, overwritten,
    written_behind_the_back, custom_function, tied_weights, accumulated_over_steps, rounding, wrapped_anew,
    by_functions, mixed_precision, hooks, normalized_weights,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_agrees_with_backward(step: Step) -> None:
    torch.manual_seed(0)
    with sgt.watch() as seen:
        loss, named = step()
    flow = seen.explain(loss, named)
    said = {name: flow[name].arrives for name in flow}
    assert said == arrived(loss, named), str(flow)
    call = None if not seen.backward_calls else seen.backward_calls[-1]
    assert call is None or call.explain(named) is not None
