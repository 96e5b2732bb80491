# Gradients by torch.autograd.grad, set by hand.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Linear(4, 1)
opt = torch.optim.Adam(m.parameters(), 0.01)
for _ in range(4):
    gs = torch.autograd.grad(m(torch.randn(8, 4)).pow(2).mean(), list(m.parameters()))
    for p, g in zip(m.parameters(), gs):
        p.grad = g
    opt.step()
