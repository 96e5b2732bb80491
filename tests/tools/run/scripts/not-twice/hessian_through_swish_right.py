# The Function is written so that it can be differentiated twice.
# finds: nothing
import torch


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))

torch.manual_seed(0)
x = torch.linspace(-3, 3, 7, requires_grad=True)
y = torch.tanh(Swish.apply(x)).sum()
first, = torch.autograd.grad(y, x, create_graph=True)
first.sum().backward()
print(first.tolist(), x.grad.tolist())
