# The weight's gradient has the weight's shape.
# finds: nothing
import torch
from torch import nn


class LinearFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x
torch.manual_seed(0)
w1, fc = nn.Parameter(torch.randn(6, 4) * 0.3), nn.Linear(6, 2)
opt = torch.optim.SGD([w1, *fc.parameters()], lr=0.1)
for _ in range(4):
    out = fc(torch.relu(LinearFn.apply(torch.randn(10, 4), w1)))
    opt.zero_grad()
    nn.functional.cross_entropy(out, torch.randint(0, 2, (10,))).backward()
    opt.step()
