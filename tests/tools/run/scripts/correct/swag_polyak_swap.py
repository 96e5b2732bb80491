# Averaged weights are swapped in for each evaluation and out again.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Linear(4, 1)
opt = torch.optim.SGD(m.parameters(), 0.1)
avg = [p.detach().clone() for p in m.parameters()]
for e in range(5):
    x = torch.randn(8, 4)
    opt.zero_grad()
    (m(x) - x[:, :1]).pow(2).mean().backward()
    opt.step()
    for a, p in zip(avg, m.parameters()):
        a.lerp_(p.detach(), 0.1)
    backup = [p.detach().clone() for p in m.parameters()]
    with torch.no_grad():
        for a, p in zip(avg, m.parameters()):
            p.copy_(a)
        print(m(x).mean().item())
        for b, p in zip(backup, m.parameters()):
            p.copy_(b)
