# A compiled model.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.Adam(m.parameters())
c = torch.compile(m, backend="eager")
for i in range(5):
    x = torch.randn(8, 4)
    opt.zero_grad()
    (c(x) - 1).pow(2).mean().backward()
    opt.step()
    print(i)
