# Lookahead: every third step goes back half the way to slow weights.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Linear(4, 1)
opt = torch.optim.Adam(m.parameters(), 0.01)
slow = [p.detach().clone() for p in m.parameters()]
for e in range(9):
    x = torch.randn(8, 4)
    opt.zero_grad()
    (m(x) - x[:, :1]).pow(2).mean().backward()
    opt.step()
    if (e + 1) % 3 == 0:
        with torch.no_grad():
            for s, p in zip(slow, m.parameters()):
                s.add_(p - s, alpha=0.5)
                p.copy_(s)
