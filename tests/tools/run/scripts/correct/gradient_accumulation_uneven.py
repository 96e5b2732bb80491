# Accumulation over three batches, with a shorter one at the end of an epoch.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters())
loader = [torch.randn(4, 4) for _ in range(7)]
for e in range(2):
    for i, x in enumerate(loader):
        (net(x).pow(2).mean() / 3).backward()
        if (i + 1) % 3 == 0 or i + 1 == len(loader):
            opt.step()
            opt.zero_grad()
