"""Users' ``autograd.Function``s in loaded programs keep the gradients that their ``backward`` computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
kept_gradients = pytest.importorskip("stopgrad.interop.torch.importing.autograd_functions").kept_gradients
Function = torch.autograd.Function


class Reversal(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return -ctx.factor * g, None


reverse = Reversal.apply


class Saving(Function):
    """Several results, one without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        y, rank = torch.exp(x * w), x.argsort(-1).to(x.dtype)
        ctx.save_for_backward(x, w, y)
        ctx.mark_non_differentiable(rank)
        return y, rank, x * 3.0

    @staticmethod
    def backward(ctx: Any, g: Any, nothing: Any, h: Any) -> Any:
        x, w, y = ctx.saved_tensors
        return g * y * w + h * 3.0, g * y * x


class Forgetful(Saving):
    @staticmethod
    def backward(ctx: Any, *gs: Any) -> Any:
        return Saving.backward(ctx, *gs)[0], None


class Newer(Function):
    """With its context set up apart, and another function in its forward and its backward."""

    @staticmethod
    def forward(x: Any) -> Any:
        return Reversal.apply(torch.sin(x), 5.0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return Reversal.apply(g, 2.0) * torch.cos(x)


class Inner(Function):
    """It differentiates in its forward, with gradients on there alone."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        with torch.enable_grad():
            y = torch.sin(x)
        ctx.save_for_backward(x)
        return y.detach() * 1.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3.0 * g * torch.cos(x)


def several(x: Any) -> Any:
    y, rank, z = Saving.apply(x, x * 2.0)
    return (y * rank).sum() + (z * y).sum()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "reversal": lambda x: (reverse(x * 2.0, 0.5) * x).sum(),
    "several": several,
    "newer": lambda x: (Newer.apply(x * x) * x).sum(),
    "gradients on inside": lambda x: (Inner.apply(x * x) * torch.tanh(x)).sum(),
    "in a row": lambda x: (Newer.apply(reverse(Newer.apply(x), 3.0))).sum(),
}


def gradients(f: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """The gradient of a function, and that of the gradient's squares."""
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return first.detach().numpy(), second.numpy()


QUICK = "reversal"


@pytest.mark.parametrize(
    "name", [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
)
def test_the_gradient_is_that_of_backward(name: str) -> None:
    f = PROGRAMS[name]
    x = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    model = sgt.load(f, x)
    np.testing.assert_allclose(model(x.numpy()), f(x).numpy(), rtol=1e-12)
    first = sg.grad(model)
    second = sg.grad(lambda a: sg.reduce_sum(sg.square(first(a))))
    for made, wanted in zip((first(x.numpy()), second(x.numpy())), gradients(f, x), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-12)


@pytest.mark.slow
def test_what_backward_returns_none_for_is_stopped() -> None:
    x = np.ones(3, np.float32)
    model = sgt.load(lambda x, w: Forgetful.apply(x, w)[0].sum(), torch.ones(3), torch.ones(3))
    flow = sg.explain(model, x, x)
    assert [flow[key].status for key in flow] == ["flows", "stopped"]


class Item(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return torch.from_numpy(np.sign(g.numpy()))


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(2.0)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2.0


@pytest.mark.parametrize(
    ("function", "told"),
    [(Item, "Item.backward cannot be traced"), (Dirty, "Dirty.forward writes into its arguments")],
)
def test_what_cannot_be_kept_is_refused(function: Any, told: str) -> None:
    with pytest.raises(sg.StopgradError, match=told):
        sgt.load(lambda x: function.apply(x * 1.0).sum(), torch.ones(3))
    assert "apply" not in vars(torch.autograd.function._SingleLevelFunction)
    assert "__getattribute__" not in vars(type(Function))


class Switching(Function):
    """Its forward switches gradients on and off again, and it sends back the double of its gradient."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Any) -> Any:
        with torch.enable_grad():
            y = x * 2.0
        with torch.no_grad():
            z = y + 1.0
        ctx.save_for_backward(x)
        return z * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * (4.0 * x + 1.0) * 2.0


def test_a_forward_may_switch_gradients_on_and_off() -> None:
    def f(x: Any) -> Any:
        y = Switching.apply(x)
        with torch.no_grad():
            z = Switching.apply(x) * x
        return (y * x * z).sum()

    x = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    made = sg.grad(sgt.load(f, x))
    x.requires_grad_()
    (wanted,) = torch.autograd.grad(f(x), x)
    np.testing.assert_allclose(made(x.detach().numpy()), wanted.numpy(), rtol=1e-12)


def test_what_other_threads_apply_meanwhile_is_as_it_was() -> None:
    found: list[bool] = []

    def apply_it() -> None:
        x = torch.ones(3, requires_grad=True)
        found.append(Reversal.apply(x, 2.0).grad_fn._forward_cls.forward.__module__ == __name__)
        Reversal.apply(x, 2.0).sum().backward()
        found.append(bool((x.grad == -2.0).all()))

    with kept_gradients():
        thread = threading.Thread(target=apply_it)
        thread.start()
        thread.join()
    assert found == [True, True]


class Boxed(Reversal):
    """It takes its gradients as a list, where PyTorch knows that."""

    boxed_grads_call = True

    @staticmethod
    def backward(ctx: Any, gs: Any) -> Any:
        return -ctx.factor * gs.pop(), None


@pytest.mark.skipif(
    not hasattr(Function, "boxed_grads_call"), reason="this release has no lists of gradients"
)
def test_gradients_are_handed_over_in_a_list_where_that_is_asked_for() -> None:
    made = sg.grad(sgt.load(lambda x: Boxed.apply(x, 3.0).sum(), torch.ones(2)))
    np.testing.assert_array_equal(made(np.ones(2, np.float32)), [-3.0, -3.0])


class Called(Reversal):
    """Its backward calls another function's forward, which is not applied by that."""

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return Passing.forward(g) * ctx.factor, None


class Passing(Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x * 3.0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 100.0


def test_a_forward_that_is_only_called_is_differentiated_itself() -> None:
    first = sg.grad(
        sgt.load(lambda x: (Called.apply(x * x, 1.0) * x).sum(), torch.ones(2, dtype=torch.float64))
    )
    second = sg.grad(lambda a: sg.reduce_sum(sg.square(first(a))))
    for made, wanted in zip(
        (first(np.ones(2)), second(np.ones(2))),
        gradients(lambda x: (Called.apply(x * x, 1.0) * x).sum(), torch.ones(2, dtype=torch.float64)),
        strict=True,
    ):
        np.testing.assert_allclose(made, wanted, rtol=1e-12)
