# The second derivative is asked of a Function marked once_differentiable: the second backward raises.
# finds: not-twice
import torch
from torch.autograd.function import once_differentiable


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))
torch.manual_seed(0)
x = torch.linspace(-3, 3, 7, requires_grad=True)
y = torch.tanh(Swish.apply(x)).sum()
first, = torch.autograd.grad(y, x, create_graph=True)
first.sum().backward()  # <second>
print(first.tolist(), x.grad.tolist())
