# A gradient penalty goes twice through a Function marked once_differentiable: backward raises.
# finds: not-twice
import torch
from torch import nn
from torch.autograd.function import once_differentiable


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 2 * x * grad
torch.manual_seed(0)
net, head = nn.Linear(3, 5), nn.Linear(5, 1)
for _ in range(4):
    x = torch.randn(6, 3, requires_grad=True)
    out = head(Square.apply(net(x))).mean()  # <called>
    grad, = torch.autograd.grad(out, x, create_graph=True)
    (out + (grad.norm(dim=1) - 1).pow(2).mean()).backward()  # <second>
