"""Functions with gradients of their own, which random PyTorch programs call."""

from __future__ import annotations

from typing import Any

import torch


class Scale(torch.autograd.Function):
    """A product, with both of its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return (g * y).sum_to_size(x.shape), (g * x).sum_to_size(y.shape)


class Forget(Scale):
    """A product that has no gradient for its second factor."""

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return (g * y).sum_to_size(x.shape), None


class Nothing(torch.autograd.Function):
    """A sine without gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.sin(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None


class Halves(torch.autograd.Function):
    """Two results, of which one has no gradient by declaration."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y, z = torch.sin(x), torch.cos(x)
        ctx.mark_non_differentiable(z)
        ctx.save_for_backward(x)
        return y, z

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * torch.cos(x)
