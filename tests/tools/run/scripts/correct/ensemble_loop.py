# An ensemble: models and optimizers in lists.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
ms = [nn.Linear(4, 1) for _ in range(3)]
os = [torch.optim.Adam(m.parameters(), 0.01) for m in ms]
for _ in range(4):
    x = torch.randn(8, 4)
    for m, o in zip(ms, os):
        i = torch.randint(0, 8, (8,))
        o.zero_grad()
        m(x[i]).sub(x[i, :1]).pow(2).mean().backward()
        o.step()
