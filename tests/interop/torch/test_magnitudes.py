"""How large gradients are in PyTorch: numbers of its own backward passes, which stay bit for bit the same."""

from __future__ import annotations

import copy
import gc
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
nn, functional = torch.nn, torch.nn.functional
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint
dispatch = pytest.importorskip("torch.utils._python_dispatch")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def norm(x: Any) -> Any:
    return pytest.approx(float(x.detach().double().norm()), rel=1e-5)


def told(flow: Any) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """The troubles of a report: kind, tensors, causes."""
    return [(one.kind, one.keys, [str(cause) for cause in one.causes]) for one in flow.troubles]


def line_of(flow: Any) -> str:
    """The source of the first cause."""
    return str(flow.troubles[0].causes[0].location.source)


def mlp(act: Callable[[], Any] = nn.Tanh, layers: int = 2, size: int = 4) -> Any:
    return nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(size, size), act())])


# -------------------------------------------------------------------------------------------- numbers


def test_the_norms_are_those_of_the_gradients_that_backward_leaves() -> None:
    net, x = mlp(), torch.randn(5, 4)
    with sgt.watch() as seen:
        loss = net(x).square().mean()
        loss.backward()
    flow = seen.explain(loss, net)
    for name, p in net.named_parameters():
        one = flow[name].magnitude
        assert one.norm == norm(p.grad)
        assert one.parameter_norm == norm(p)
        assert (one.elements, one.zeros) == (p.numel(), int((p.grad == 0).sum()))
    assert flow.troubles == ()
    assert [call.explain(net).magnitudes for call in seen.backward_calls] == [flow.magnitudes]


def test_what_grad_held_before_does_not_count() -> None:
    w = torch.ones(3, requires_grad=True)
    w.grad = torch.full((3,), 100.0)
    with sgt.watch() as seen:
        loss = (w * torch.tensor([3.0, 4.0, 0.0])).sum()
        loss.backward()
    one = seen.explain(loss, {"w": w})["w"].magnitude
    assert one.norm == pytest.approx(5.0)
    assert one.zeros == 1
    assert w.grad.tolist() == [103.0, 104.0, 100.0]


def test_each_backward_pass_has_its_own_numbers() -> None:
    w = torch.ones((), requires_grad=True)
    with sgt.watch() as seen:
        losses = [w * 2.0, w * 3.0]
        for loss in losses:
            loss.backward()
    assert [seen.explain(loss, {"w": w})["w"].magnitude.norm for loss in losses] == [2.0, 3.0]
    assert [call.explain({"w": w})["w"].magnitude.norm for call in seen.backward_calls] == [2.0, 3.0]


def test_the_gradients_that_autograd_grad_returns_are_measured() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with sgt.watch() as seen:
        loss = (a * 3.0 + b * 4.0).sum()
        torch.autograd.grad(loss, [a, b])
    flow = seen.explain(loss, {"a": a, "b": b})
    assert [flow[key].magnitude.norm for key in "ab"] == [norm(torch.full((2,), x)) for x in (3.0, 4.0)]


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        (1e-30, torch.float32),
        (1e-40, torch.float32),
        (1e38, torch.float32),
        (1e-200, torch.float64),
        (1e300, torch.float64),
        (6e4, torch.float16),
        (1e30, torch.bfloat16),
        (1e-30, torch.complex64),
    ],
)
def test_norms_are_right_where_squares_are_no_numbers(size: float, dtype: Any) -> None:
    slopes = torch.tensor([1.0, 0.5], dtype=dtype) * size
    w = torch.ones(2, dtype=dtype, requires_grad=True)
    with sgt.watch() as seen:
        loss = (w * slopes).sum().real
        loss.backward()
    one = seen.explain(loss, {"w": w})["w"].magnitude
    assert one.norm == pytest.approx(math.hypot(*slopes.abs().tolist()), rel=1e-3)
    assert one.is_finite


def test_zeros_nans_and_infinities_are_counted() -> None:
    w = torch.ones(6, requires_grad=True)
    with sgt.watch() as seen:
        loss = (w * torch.tensor([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf])).sum()
        loss.backward()
    one = seen.explain(loss, {"w": w})["w"].magnitude
    assert (one.zeros, one.nans, one.infs) == (2, 1, 2)


def test_of_a_gradient_that_is_gone_the_norm_is_known_and_the_zeros_are_not() -> None:
    w = torch.ones(2, requires_grad=True)
    with sgt.watch() as seen:
        loss = (w * torch.tensor([3.0, 0.0])).sum()
        loss.backward()
        w.grad = None
    one = seen.explain(loss, {"w": w})["w"].magnitude
    assert (one.norm, one.zeros) == (3.0, None)


def test_where_a_gradient_is_zero_all_is_found_out_at_once() -> None:
    w, b = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([w, b], lr=1.0)
    with sgt.watch() as seen:
        loss = (w * b).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    flow = seen.explain(loss, {"w": w, "b": b})
    assert flow["b"].magnitude.is_zero
    assert (flow["w"].magnitude.zeros, flow["w"].magnitude.parameter_norm) == (0, 0.0)
    assert "until the first step changes that" in flow.to_text()


def test_sparse_gradients_count_the_rows_that_they_lack_as_zeros() -> None:
    table = nn.Embedding(10, 4, sparse=True)
    with sgt.watch() as seen:
        loss = table(torch.tensor([1, 1, 3])).sum()
        loss.backward()
    one = seen.explain(loss, table)["weight"].magnitude
    assert one.norm == norm(table.weight.grad.to_dense())
    assert (one.elements, one.zeros) == (40, 32)


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_checkpoint_computes_again_is_measured(reentrant: bool) -> None:
    inner, x = mlp(), torch.randn(5, 4, requires_grad=True)
    with sgt.watch() as seen:
        loss = checkpoint(inner, x, use_reentrant=reentrant).square().mean()
        loss.backward()
    flow = seen.explain(loss, {"inner": inner})
    for name, p in inner.named_parameters():
        assert flow[f"inner.{name}"].magnitude.norm == norm(p.grad)


def test_the_parts_of_a_gradient_that_a_checkpoint_brings_are_added_up() -> None:
    inner, x = mlp(), torch.randn(5, 4, requires_grad=True)
    with sgt.watch() as seen:
        loss = (checkpoint(inner, x, use_reentrant=True) + inner(2.0 * x)).square().mean()
        loss.backward()
    flow = seen.explain(loss, {"inner": inner})
    for name, p in inner.named_parameters():
        assert flow[f"inner.{name}"].magnitude.norm == norm(p.grad)


def test_a_gradient_is_measured_after_the_hooks_of_its_tensor() -> None:
    w = torch.ones(2, requires_grad=True)
    w.register_hook(lambda g: 10.0 * g)
    with sgt.watch() as seen:
        loss = w.sum()
        loss.backward()
    assert seen.explain(loss, {"w": w})["w"].magnitude.norm == norm(w.grad) == norm(torch.full((2,), 10.0))


def test_a_gradient_that_an_optimizer_takes_at_once_is_measured() -> None:
    """The hook after accumulation steps and drops the gradient, as fused optimizers do."""
    w = torch.ones(2, requires_grad=True)

    def step(p: Any) -> None:
        p.data.sub_(p.grad)
        p.grad = None

    w.register_post_accumulate_grad_hook(step)
    with sgt.watch() as seen:
        loss = (3.0 * w).sum()
        loss.backward()
    assert seen.explain(loss, {"w": w})["w"].magnitude.norm == norm(torch.full((2,), 3.0))


# --------------------------------------------------------------------------------------- explain itself


def test_explain_differentiates_and_leaves_no_trace() -> None:
    net, x = mlp(), torch.randn(5, 4)
    kept = torch.ones_like(net[0].weight)
    net[0].weight.grad = kept
    state = torch.get_rng_state()
    flow = sgt.explain(lambda: net(x).square().mean(), model=net, magnitudes=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert net[0].weight.grad is kept
    assert torch.equal(kept, torch.ones_like(kept))
    assert net[0].bias.grad is None
    net.zero_grad()
    net(x).square().mean().backward()
    assert all(flow[name].magnitude.norm == norm(p.grad) for name, p in net.named_parameters())


class Reversed(torch.autograd.Function):
    """Differentiates by itself, as reversible networks do, and draws random numbers for it."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return x * w.detach()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, w = ctx.saved_tensors
        with torch.enable_grad():
            (x.detach() * w * g + 0.0 * torch.rand(3)).sum().backward()
        return g * w, None


def test_explain_adds_nothing_to_gradients_and_draws_no_random_numbers_also_by_a_functions_backward() -> None:
    w, kept = torch.full((3,), 2.0, requires_grad=True), torch.ones(3)
    w.grad = kept
    state = torch.get_rng_state()
    x = torch.ones(3, requires_grad=True)
    flow = sgt.explain(lambda x: Reversed.apply(x, w).sum(), x, model={"x": x, "w": w}, magnitudes=True)
    assert flow["x"].magnitude.norm == norm(torch.full((3,), 2.0))
    assert w.grad is kept
    assert kept.tolist() == [1.0, 1.0, 1.0]
    assert torch.equal(torch.get_rng_state(), state)


def test_a_watch_differentiates_only_where_nobody_has() -> None:
    w = torch.ones(2, requires_grad=True)
    with sgt.watch() as seen:
        loss = (w * w).sum()
    assert seen.explain(loss, {"w": w})["w"].magnitude is None
    assert seen.explain(loss, {"w": w}, magnitudes=True)["w"].magnitude.norm == norm(torch.full((2,), 2.0))
    loss.backward()  # The graph is still there.


def test_a_loss_that_is_no_scalar_is_differentiated_as_its_sum() -> None:
    w = torch.ones(3, requires_grad=True)
    one = sgt.explain(lambda w: w * 2.0, w, magnitudes=True)["w"].magnitude
    assert one.norm == norm(torch.full((3,), 2.0))


def test_of_a_graph_that_is_freed_the_report_says_that_magnitudes_are_not_known() -> None:
    w = torch.ones(2, requires_grad=True)
    with sgt.watch() as seen:
        loss = (w * w).sum()
    loss.backward()
    flow = seen.explain(loss, {"w": w}, magnitudes=True)
    assert flow["w"].arrives
    assert flow["w"].magnitude is None
    assert "how large they are is not known" in flow.to_text(width=300)


# ------------------------------------------------------------------------------------ nothing is changed


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2.0


def with_hooks(net: Any, x: Any) -> Any:
    h = net[0](x)
    h.register_hook(lambda g: g * 1.5)
    return net[2](torch.tanh(h)).square().mean()


def with_penalty(net: Any, x: Any) -> Any:
    """A gradient of a gradient."""
    y = net(x).square().mean()
    grads = torch.autograd.grad(y, list(net.parameters()), create_graph=True)
    return y + sum(g.square().sum() for g in grads)


STEPS: list[Callable[[Any, Any], Any]] = [
    lambda net, x: net(x).square().mean(),
    with_hooks,
    with_penalty,
    lambda net, x: checkpoint(net, x, use_reentrant=False).square().mean(),
    lambda net, x: checkpoint(net, x.requires_grad_(), use_reentrant=True).square().mean(),
    lambda net, x: Doubled.apply(net(x)).sum() + net(2.0 * x).sum(),
    lambda net, x: functional.dropout(net(x), 0.5).square().mean(),
]


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_gradients_are_the_same_bits_as_without_a_watch(step: int) -> None:
    net = mlp()
    twin, x = copy.deepcopy(net), torch.randn(5, 4)
    for watched, one in ((False, net), (True, twin)):
        torch.manual_seed(1)
        if watched:
            with sgt.watch() as seen:
                STEPS[step](one, x.clone()).backward()
            assert seen.backward_calls[-1].explain(one).magnitudes
        else:
            STEPS[step](one, x.clone()).backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(net.parameters(), twin.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_second_derivatives_are_the_same_bits() -> None:
    grads = []
    for watched in (False, True):
        w = torch.linspace(0.1, 1.0, 5, requires_grad=True)
        with sgt.watch() if watched else torch.enable_grad():
            torch.sin(w * w).sum().backward(create_graph=True)
            w.grad.square().sum().backward()
        grads.append(w.grad)
    assert torch.equal(*grads)


def test_no_hook_stays_behind() -> None:
    w = torch.ones(2, requires_grad=True)
    with sgt.watch() as seen:
        loss = (w * w).sum()
        loss.backward(retain_graph=True)
        before = seen.explain(loss, {"w": w})["w"].magnitude
    w.data.mul_(100.0)
    loss.backward()
    assert seen.explain(loss, {"w": w})["w"].magnitude == before


def test_no_tensor_is_kept_alive() -> None:
    w = torch.ones(3, requires_grad=True)
    gone = []
    with sgt.watch() as seen:
        y = w * 2.0
        y.register_hook(lambda g: gone.append(weakref.ref(g)))
        loss = y.sum()
        loss.backward()
        gone += [weakref.ref(y), weakref.ref(w.grad)]
        del y
        w.grad = None
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)
    assert seen.explain(loss, {"w": w})["w"].magnitude is not None


def test_modes_of_the_users_see_nothing_of_it() -> None:
    class Calls(dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    seen = []
    for watched in (False, True):
        net, x = mlp(), torch.randn(3, 4)
        loss = net(x).sum()
        with sgt.watch() if watched else torch.enable_grad(), Calls() as calls:
            loss.backward()
        seen.append(calls.names)
    assert seen[0] == seen[1]
    assert "aten.mm.default" in seen[0]


def test_a_backward_that_fails_leaves_no_hook_and_its_own_error() -> None:
    class Broken(Doubled):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise ZeroDivisionError("mine")

    w = torch.ones(2, requires_grad=True)
    with sgt.watch() as seen:
        y = w * 3.0
        loss = Broken.apply(y).sum()
        with pytest.raises(ZeroDivisionError, match="mine"):
            loss.backward(retain_graph=True)
        y.sum().backward()
    assert w.grad.tolist() == [3.0, 3.0]
    assert [len(call.explain({"w": w}).magnitudes) for call in seen.backward_calls] == [0, 1]


# -------------------------------------------------------------------------------------- what is wrong


def test_forty_sigmoids_are_told_with_line_and_factor() -> None:
    net, x = mlp(nn.Sigmoid, 40, 8), torch.randn(16, 8)
    with sgt.watch() as seen:
        loss = net(x).square().mean()
        loss.backward()
    flow = seen.explain(loss, net)
    (trouble,) = flow.troubles
    assert trouble.kind == "vanishing"
    assert trouble.start == ("78.weight", norm(net[78].weight.grad))
    assert trouble.end[0] in ("0.weight", "0.bias")
    assert trouble.causes[0].location.source == "net(x)"
    assert str(trouble.causes[0]).startswith("sigmoid passes on 0.2")
    assert str(trouble.causes[0]).endswith(" of it each time (39 uses)")
    assert f"reach all 80 tensors; {len(trouble.keys)} of them vanish." in flow.to_text()


def test_saturated_sigmoids_are_called_so() -> None:
    net, x = mlp(nn.Sigmoid, 6), torch.randn(16, 4)
    with torch.no_grad():
        for layer in net[::2]:
            layer.bias.fill_(12.0)
    flow = sgt.explain(lambda: net(x).sum(), model=net, magnitudes=True)
    (trouble,) = flow.troubles
    slope = math.exp(-12.0)  # Of a sigmoid at about 12.
    assert str(trouble.causes[0]).startswith("sigmoid is saturated, and passes on ")
    told_slope = float(str(trouble.causes[0]).split()[6])
    assert 0.3 * slope < told_slope < 3.0 * slope


@pytest.mark.parametrize(
    ("f", "says", "source"),
    [
        (lambda w: torch.relu(w - 9.0), "relu is dead: it is off", "torch.relu(w - 9.0)"),
        (lambda w: functional.relu(w - 9.0), "relu is dead: it is off", "functional.relu(w - 9.0)"),
        (lambda w: w.clamp(5.0, 6.0), "clamp passes on nothing: all is outside", "w.clamp(5.0, 6.0)"),
        (lambda w: w.masked_fill(w < 9.0, 0.0), "masked_fill takes none of it", "w.masked_fill("),
        (lambda w: torch.where(w > 9.0, w, 0.0), "where takes none of it", "torch.where(w > 9.0, w, 0.0)"),
        (lambda w: w * 0.0, "mul multiplies it by zeros", "w * 0.0"),
        (lambda w: w @ torch.zeros(4, 2), "matmul multiplies it by zeros", "w @ torch.zeros(4, 2)"),
        (lambda w: torch.sigmoid(1e6 * w), "sigmoid is saturated: its slope is 0", "torch.sigmoid(1e6 * w)"),
        (lambda w: functional.dropout(w, 1.0), "dropout takes none of it", "functional.dropout(w, 1.0)"),
    ],
)
def test_what_passes_nothing_on_is_named(f: Callable[[Any], Any], says: str, source: str) -> None:
    flow = sgt.explain(lambda w: f(w).sum(), torch.ones(3, 4, requires_grad=True), magnitudes=True)
    ((kind, keys, (cause,)),) = told(flow)
    assert (kind, keys) == ("zero", ("w",))
    assert cause.replace("__", "").startswith(says)
    assert line_of(flow).startswith(source)


def test_a_hook_that_makes_a_gradient_zero_is_named() -> None:
    w = torch.ones(2, requires_grad=True)
    with sgt.watch() as seen:
        y = w * 2.0
        y.register_hook(lambda g: g * 0.0)
        loss = y.sum()
        loss.backward()
    flow = seen.explain(loss, {"w": w})
    assert told(flow) == [("zero", ("w",), ["a hook makes it 0, unless sum does"])]
    assert line_of(flow).startswith("y.register_hook")


def test_a_factor_of_zero_that_is_trained_is_named() -> None:
    down, up, x = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False), torch.randn(3, 4)
    nn.init.zeros_(up.weight)
    flow = sgt.explain(
        lambda: (x + up(down(x))).square().mean(), model={"down": down, "up": up}, magnitudes=True
    )
    cause = "linear multiplies it by up.weight, which is 0 until the first step changes that"
    assert told(flow) == [("zero", ("down.weight",), [cause])]


def test_a_bias_of_zeros_is_not_taken_for_a_factor() -> None:
    layer = nn.Linear(4, 4)
    nn.init.zeros_(layer.bias)
    w = torch.ones(4, requires_grad=True)
    flow = sgt.explain(
        lambda: layer(w * torch.zeros(4)).sum(), model={"w": w, "layer": layer}, magnitudes=True
    )
    assert all("which is 0" not in cause for _, _, causes in told(flow) for cause in causes)


def test_what_makes_a_gradient_nan_is_named() -> None:
    w = torch.zeros(3, requires_grad=True)
    with sgt.watch() as seen:
        loss = (torch.sqrt(w) * 0.0).sum()
        loss.backward()
    flow = seen.explain(loss, {"w": w})
    assert told(flow) == [("not finite", ("w",), ["sqrt makes it NaN or infinite"])]
    assert "\nNaN: w\n" in flow.to_text()


def test_a_tiny_scale_between_layers_is_named() -> None:
    body, head, x = nn.Linear(4, 4), nn.Linear(4, 4), torch.randn(3, 4)
    model = {"body": body, "head": head}
    flow = sgt.explain(lambda: head(x + 1e-9 * body(x)).square().mean(), model=model, magnitudes=True)
    ((kind, keys, (cause,)),) = told(flow)
    assert (kind, keys) == ("vanishing", ("body.weight", "body.bias"))
    assert cause.endswith("passes on 1e-9 of it")
    assert line_of(flow) == "1e-9 * body(x)"


# ------------------------------------------------------------------------------------- no false alarms


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=True),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=True),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Any) -> Any:
        return torch.relu(x + self.body(x))


def classified(net: Any, x: Any) -> Callable[[], Any]:
    return lambda: functional.cross_entropy(net(x).flatten(1)[:, :2], torch.arange(len(x)) % 2)


def fresh() -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """Models as PyTorch initialises them, and a loss of each."""
    x = torch.randn(16, 8)
    for act in (nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU):
        for layers in (2, 10):
            net = nn.Sequential(mlp(act, layers, 8), nn.Linear(8, 2))
            yield f"mlp of {layers} {act.__name__}", net, classified(net, x)
    net = nn.Sequential(mlp(nn.Sigmoid, 5, 8), nn.Linear(8, 2))
    yield "mlp of 5 Sigmoid", net, classified(net, x)
    stem = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
    net = nn.Sequential(*stem, *[Residual(8) for _ in range(8)], nn.AdaptiveAvgPool2d(1), nn.Flatten())
    yield "resnet", net, classified(net, torch.randn(4, 3, 8, 8))
    vgg = [part for _ in range(12) for part in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())]
    net = nn.Sequential(*stem, *vgg, nn.Flatten())
    yield "convolutions with biases before batch norms", net, classified(net, torch.randn(4, 3, 8, 8))
    for first in (True, False):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first)
        encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        net = nn.Sequential(nn.Embedding(11, 8), encoder, nn.Linear(8, 11))
        words = torch.randint(11, (4, 6))
        yield (
            f"transformer, norm_first={first}",
            net,
            lambda net=net, words=words: functional.cross_entropy(net(words).flatten(0, 1), words.flatten()),
        )
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        rnn = kind(8, 8, 2, batch_first=True)
        yield kind.__name__, rnn, classified(lambda x, rnn=rnn: rnn(x)[0][:, -1], torch.randn(4, 50, 8))
    cell, table = nn.LSTMCell(8, 8), nn.Embedding(11, 8)

    def unrolled() -> Any:
        h, c = torch.zeros(4, 8), torch.zeros(4, 8)
        for word in torch.randint(11, (50, 4)):
            h, c = cell(table(word), (h, c))
        return h.square().mean()

    yield "cells of an LSTM over 50 steps", nn.ModuleList([cell, table]), unrolled
    wide = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 3, padding=1))
    image = torch.randn(1, 3, 64, 64)
    yield "an image in, an image out", wide, lambda: functional.mse_loss(wide(image), image)


def is_well(name: str, net: Any, loss: Callable[[], Any]) -> bool:
    with sgt.watch() as seen:
        value = loss()
        value.backward()
    flow = seen.explain(value, net)
    assert flow.magnitudes, name
    assert flow.troubles == (), f"{name}\n{flow}"
    return True


def test_an_mlp_as_pytorch_initialises_it_is_not_accused() -> None:
    models = fresh()
    assert [is_well(*next(models)) for _ in range(2)] == [True] * 2


@pytest.mark.slow
def test_models_as_pytorch_initialises_them_are_not_accused() -> None:
    assert [is_well(*model) for model in fresh()] == [True] * 18


def test_scales_of_residual_branches_that_begin_small_are_not_accused() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.scale = nn.Linear(4, 4), nn.Parameter(torch.full((4,), 1e-8))

        def forward(self, x: Any) -> Any:
            return x + self.scale * torch.tanh(self.body(x))

    net, x = nn.Sequential(Block(), Block(), nn.Linear(4, 2)), torch.randn(5, 4)
    flow = sgt.explain(lambda: net(x).square().mean(), model=net, magnitudes=True)
    assert flow["0.body.weight"].magnitude.norm < 1e-7 * flow["2.weight"].magnitude.norm
    assert flow.troubles == ()


def test_parameters_made_and_initialised_inside_have_magnitudes() -> None:
    with sgt.watch() as seen:
        net = torch.nn.Linear(3, 2)
        loss = (net(torch.ones(4, 3)) * 0.0).sqrt().sum()
        loss.backward()
    flow = seen.backward_calls[-1].explain(net)
    assert set(flow.magnitudes) == {"weight", "bias"}
    (trouble,) = flow.troubles
    assert (trouble.kind, trouble.keys) == ("not finite", ("weight", "bias"))
    assert trouble.causes[0].location.source.endswith(".sqrt()")


def test_each_tensor_of_a_list_is_written_into() -> None:
    w = torch.ones(3, requires_grad=True)
    one, two = w * 1.0, w * 2.0
    with sgt.watch() as seen:
        a, b = one * 1.0, two * 1.0
        torch._foreach_mul_([a, b], 0.0)
        loss = (a + b).sum()
    assert seen.explain(loss, {"w": w})["w"].arrives
    versions = [[write.version for write in seen._recorder.memory.store(x).writes] for x in (a, b)]
    assert versions == [[1], [1]]
