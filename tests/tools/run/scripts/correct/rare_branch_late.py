# A layer is used only after some steps.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
t, late = nn.Linear(4, 4), nn.Linear(4, 4)
o = nn.Linear(4, 1)
opt = torch.optim.Adam([*t.parameters(), *late.parameters(), *o.parameters()])
for i in range(10):
    h = t(torch.randn(8, 4))
    h = late(h) if i > 6 else h
    opt.zero_grad()
    o(h).pow(2).mean().backward()
    opt.step()
