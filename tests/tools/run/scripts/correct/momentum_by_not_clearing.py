# Gradients are made smaller instead of cleared: a momentum by hand.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Linear(4, 1)
opt = torch.optim.SGD(m.parameters(), 0.01)
for _ in range(6):
    m(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
    for p in m.parameters():
        p.grad.mul_(0.9)
