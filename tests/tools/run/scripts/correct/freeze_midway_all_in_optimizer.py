# A layer is frozen midway, its gradients set to None, and the optimizer keeps it.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(m.parameters(), 1e-2)
for e in range(8):
    if e == 3:
        for p in m[0].parameters():
            p.requires_grad = False
            p.grad = None
    opt.zero_grad()
    nn.functional.cross_entropy(m(torch.randn(8, 4)), torch.randint(0, 2, (8,))).backward()
    opt.step()
