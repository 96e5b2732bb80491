# A schedule by hand whose first steps have a rate of 0.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Linear(4, 1)
opt = torch.optim.AdamW(m.parameters(), lr=0.0)
for i in range(8):
    for g in opt.param_groups:
        g["lr"] = max(0, i - 3) * 1e-3
    opt.zero_grad()
    m(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
