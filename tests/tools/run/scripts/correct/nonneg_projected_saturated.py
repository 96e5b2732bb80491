# Weights are projected to be positive and stay at 0.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
w = nn.Parameter(torch.tensor([0.0, 0.0, 1.0]))
b = nn.Parameter(torch.zeros(1))
opt = torch.optim.SGD([w, b], 0.1)
for i in range(6):
    x = torch.randn(8, 3)
    opt.zero_grad()
    (x @ w + b - x @ torch.tensor([-1.0, -1.0, 2.0])).pow(2).mean().backward()
    opt.step()
    with torch.no_grad():
        w.clamp_(min=0)
