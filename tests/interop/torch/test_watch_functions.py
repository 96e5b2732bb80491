"""Watches of ``autograd.Function``s whose ``backward`` calls ``backward``, as reversible networks do."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
nn = torch.nn


class Block(nn.Module):
    """A reversible block: its input is computed from its output, and its function once more."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        a, b = x.chunk(2, -1)
        a = a + self.f(b)
        return torch.cat([a, b + self.g(a)], -1)

    def backwards(self, y: Any, gradient: Any) -> Any:
        (a, b), (da, db) = y.chunk(2, -1), gradient.chunk(2, -1)
        with torch.enable_grad():
            a.requires_grad = True
            change = self.g(a)
            torch.autograd.backward(change, db)
        b = (b - change).detach().requires_grad_()
        da = da + a.grad
        with torch.enable_grad():
            change = self.f(b)
            change.backward(da)
        return torch.cat([a - change, b], -1).detach(), torch.cat([da, db + b.grad], -1)


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, blocks: Any) -> Any:
        for block in blocks:
            x = block(x)
        ctx.y, ctx.blocks = x.detach(), blocks
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        y = ctx.y
        for block in reversed(ctx.blocks):
            y, gradient = block.backwards(y, gradient)
        return gradient, None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.idle = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(2, 2)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Any) -> Any:
        return self.last(Reversible.apply(self.first(x), self.blocks)).square().mean()


def arriving(flow: Any) -> dict[str, bool]:
    return {key: flow[key].arrives for key in flow}


def gradients(net: Any) -> dict[str, bool]:
    return {name: bool(p.grad is not None and p.grad.any()) for name, p in net.named_parameters()}


def made(watched: bool = True) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    net, seen = Net(), sgt.watch()
    x = torch.randn(3, 3)
    if not watched:
        return net, net(x), seen
    with seen:
        loss = net(x)
    return net, loss, seen


def test_what_a_function_computes_again_gets_its_gradient() -> None:
    net, loss, seen = made()
    state = torch.get_rng_state()
    flow = seen.explain(loss, net)
    # To find out, nothing was differentiated and nothing drawn.
    assert all(p.grad is None for p in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    loss.backward()
    assert arriving(flow) == gradients(net)
    assert not flow["idle.weight"].arrives
    assert flow["blocks.0.f.weight"].status == "flows"
    assert arriving(seen.explain(loss, net)) == gradients(net)  # After a backward pass outside of the watch.


def test_gradients_that_are_there_stay_as_they_are() -> None:
    net, loss, seen = made()
    kept = [torch.full_like(p, 2.0) for p in net.parameters()]
    for p, g in zip(net.parameters(), kept, strict=True):
        p.grad = g
    seen.explain(loss, net)
    assert all(p.grad is g and bool((g == 2.0).all()) for p, g in zip(net.parameters(), kept, strict=True))


def test_a_backward_pass_in_the_watch_shows_it() -> None:
    torch.manual_seed(0)
    net = Net()
    with sgt.watch() as seen:
        loss = net(torch.randn(3, 3))
        loss.backward()
    (call,) = seen.backward_calls
    assert arriving(call.explain(net)) == arriving(seen.explain(loss, net)) == gradients(net)


def test_without_a_watch_too() -> None:
    net, loss, _ = made(watched=False)
    sgt.assert_flows(loss, {"first": net.first, "blocks": net.blocks})
    sgt.assert_blocked(loss, net.idle)


class Half(torch.autograd.Function):
    """Uses two hidden tensors, and differentiates again only what it makes of the first."""

    hidden: Any = None
    fails = False

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        a, b = Half.hidden
        ctx.save_for_backward(x)
        return x * a + b

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if Half.fails:
            raise ValueError("not today")
        (x,) = ctx.saved_tensors
        a, _ = Half.hidden
        with torch.enable_grad():
            torch.autograd.backward((x.detach() * a,), (gradient,))
        return gradient * a.detach()


class Around(torch.autograd.Function):
    """Computes a function again that itself computes something again."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return Half.apply(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            Half.apply(x).backward(gradient)
        return x.grad


@pytest.mark.parametrize("function", [Half, Around])
@pytest.mark.parametrize("early", [True, False])
def test_what_it_does_not_compute_again_stays_stopped(function: Any, early: bool) -> None:
    a, b, x = [torch.ones(3, requires_grad=True) for _ in range(3)]
    with sgt.watch() as seen:
        Half.hidden = a * 2.0, b * 2.0
        loss = function.apply(x).sum()
        if not early:
            loss.backward()
    flow = seen.explain(loss, {"a": a, "b": b, "x": x})
    assert [flow[key].status for key in flow] == ["flows", "stopped", "flows"]
    loss.backward() if early else None
    assert (a.grad is None, b.grad is None, x.grad is None) == (False, True, False)


def test_a_function_that_cannot_be_tried_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    a, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with sgt.watch() as seen:
        Half.hidden = a * 2.0, torch.ones(3)
        loss = Half.apply(x).sum()
    monkeypatch.setattr(Half, "fails", True)
    flow = seen.explain(loss, {"a": a, "x": x})
    assert "Half.backward fails on zeros (ValueError: not today)" in flow.to_text(width=400)


def test_a_backward_that_raises_leaves_no_mode_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3, requires_grad=True)
    with sgt.watch():
        Half.hidden = torch.ones(3), torch.ones(3)
        loss = Half.apply(x).sum()
    monkeypatch.setattr(Half, "fails", True)
    before = torch.overrides._get_current_function_mode_stack()
    with pytest.raises(ValueError, match="not today"):
        loss.backward()
    assert torch.overrides._get_current_function_mode_stack() == before


class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2.0


class Outer(torch.autograd.Function):
    """Its forward uses another function, as losses with a projection do."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        with torch.no_grad():
            y = Inner.apply(x)
        return y * Inner.apply(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


class Assign(torch.autograd.Function):
    """Writes into its first argument, unseen by autograd, and returns it, as solvers of equations do."""

    @staticmethod
    def forward(ctx: Any, buffer: Any, value: Any, column: int) -> Any:
        ctx.column = column
        buffer.data[:, column] = value
        return buffer

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g, g[:, ctx.column], None


def assigned(x: Any) -> Any:
    buffer = Assign.apply(torch.zeros(3, 2), x * 2.0, 0)
    return Assign.apply(buffer, buffer[:, 0] * x, 1)


@pytest.mark.parametrize("function", [Outer.apply, assigned])
def test_what_happens_in_a_forward_is_no_stop_where_backward_hands_the_gradient_on(function: Any) -> None:
    x = torch.ones(3, requires_grad=True)
    with sgt.watch() as seen:
        loss = function(x).sum()
    flow = seen.explain(loss, {"x": x})
    assert flow["x"].status == "flows", str(flow)


class Integrated(torch.autograd.Function):
    """Its forward differentiates inside, with gradients on, as solvers of differential equations do."""

    @staticmethod
    def forward(ctx: Any, w: Any, x: Any) -> Any:
        with torch.enable_grad():
            y = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad((w * y * y).sum(), y, create_graph=True)
        ctx.save_for_backward(w, x)
        return x + slope.detach()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        w, x = ctx.saved_tensors
        return 2.0 * x * g, g + 2.0 * w * g


def test_what_a_forward_computes_with_gradients_on_is_no_stop_either() -> None:
    w, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with sgt.watch() as seen:
        loss = Integrated.apply(w, Integrated.apply(w, x * 2.0)).sum()
    flow = seen.explain(loss, {"w": w, "x": x})
    assert {key: flow[key].status for key in flow} == {"w": "flows", "x": "flows"}, str(flow)


class Closing(torch.autograd.Function):
    """Uses a tensor that it is not given, without gradients."""

    @staticmethod
    def forward(ctx: Any, x: Any, f: Any) -> Any:
        with torch.no_grad():
            y = f(x)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g, None


def test_a_tensor_that_a_forward_closes_over_is_stopped_by_the_call_of_the_function() -> None:
    w, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with sgt.watch() as seen:
        loss = Closing.apply(x, lambda x: x * w).sum()
    flow = seen.explain(loss, {"w": w, "x": x})
    (cut,) = flow["w"].cuts
    assert flow["x"].status == "flows"
    assert cut.reason == "inside Closing.forward"
    assert cut.location.source.startswith("Closing.apply(x")


class Estimated(torch.autograd.Function):
    """Its backward uses up what the forward kept: a graph, a tensor that it writes into, and an attribute."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = ctx.x.exp()
        saved, more = torch.ones(3), torch.full((3,), 2.0)
        ctx.save_for_backward(saved, more)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        saved, more = ctx.saved_tensors
        saved *= g
        torch.mul(more, saved, out=more)
        (slope,) = torch.autograd.grad(ctx.y, ctx.x, saved)
        del ctx.y
        return slope * more


def test_a_function_that_was_tried_does_afterwards_what_it_would_have_done() -> None:
    x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    with sgt.watch() as seen:
        loss = (3.0 * Estimated.apply(x)).sum()
    assert seen.explain(loss, {"x": x})["x"].status == "flows"
    loss.backward()
    torch.testing.assert_close(x.grad, 3.0 * x.detach().exp() * 6.0)


class Freeing(torch.autograd.Function):
    """Frees the memory of its argument, and computes it again from the result, as reversible layers do."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.detach() * 2.0
        x.untyped_storage().resize_(0)
        ctx.kept = [(x, y)]
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.kept.pop()
        again = y / 2.0
        y.untyped_storage().resize_(0)
        x.untyped_storage().resize_(again.untyped_storage().nbytes())
        x.set_(again)
        return 2.0 * g * x


def test_memory_that_a_tried_function_frees_is_there_afterwards() -> None:
    x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    with sgt.watch() as seen:
        loss = Freeing.apply(x + 1.0).sum()
    assert seen.explain(loss, {"x": x})["x"].status == "flows"
    loss.backward()
    torch.testing.assert_close(x.grad, torch.tensor([2.0, 4.0, 6.0]))


def test_checkpoints_in_a_loop_hand_gradients_on() -> None:
    layers, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), torch.ones(2, 3, requires_grad=True)
    with sgt.watch() as seen:
        y = x
        for layer in layers:
            y = torch.utils.checkpoint.checkpoint(
                lambda z, layer=layer: layer(z).tanh(), y, use_reentrant=True
            )
        loss = y.sum()
    flow = seen.explain(loss, {"x": x, "layers": layers})
    assert {flow[key].status for key in flow} == {"flows"}, str(flow)
