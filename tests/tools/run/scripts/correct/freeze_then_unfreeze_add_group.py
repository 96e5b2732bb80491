# Gradual unfreezing: a group is added to the optimizer when its layer is unfrozen.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
m[0].requires_grad_(False)
opt = torch.optim.Adam(m[2].parameters(), 1e-2)
for e in range(8):
    if e == 4:
        m[0].requires_grad_(True)
        opt.add_param_group({"params": m[0].parameters(), "lr": 1e-3})
    opt.zero_grad()
    nn.functional.cross_entropy(m(torch.randn(8, 4)), torch.randint(0, 2, (8,))).backward()
    opt.step()
