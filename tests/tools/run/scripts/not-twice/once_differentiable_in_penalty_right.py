# The Function's backward is differentiable itself.
# finds: nothing
import torch
from torch import nn


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 2 * x * grad

torch.manual_seed(0)
net, head = nn.Linear(3, 5), nn.Linear(5, 1)
for _ in range(4):
    x = torch.randn(6, 3, requires_grad=True)
    out = head(Square.apply(net(x))).mean()
    grad, = torch.autograd.grad(out, x, create_graph=True)
    (out + (grad.norm(dim=1) - 1).pow(2).mean()).backward()
