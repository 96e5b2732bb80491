# An auxiliary loss has the weight 0 for the first steps.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
t, aux = nn.Linear(4, 4), nn.Linear(4, 1)
o = nn.Linear(4, 1)
opt = torch.optim.Adam([*t.parameters(), *aux.parameters(), *o.parameters()])
for i in range(12):
    h = t(torch.randn(8, 4))
    w = 0.0 if i < 5 else 1.0
    opt.zero_grad()
    (o(h).pow(2).mean() + w * aux(h).pow(2).mean()).backward()
    opt.step()
