# backward returns one gradient for each input, None for the number.
# finds: nothing
import torch
from torch import nn


class LeakyClamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return torch.where(x.abs() > ctx.limit, 0.01 * grad_output, grad_output), None
torch.manual_seed(0)
net = nn.Linear(5, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(4):
    loss = LeakyClamp.apply(net(torch.randn(8, 5)), 1.0).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
