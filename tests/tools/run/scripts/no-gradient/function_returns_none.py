# The custom Function returns None for the weight, so the weight is never trained.
# finds: no-gradient
import torch
from torch import nn

torch.manual_seed(0)

class ScaleFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * weight, None
scale, fc = nn.Parameter(torch.ones(6)), nn.Linear(6, 6)
opt = torch.optim.SGD([scale, *fc.parameters()], lr=0.1)
for _ in range(5):
    loss = ScaleFn.apply(fc(torch.randn(9, 6)), scale).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
