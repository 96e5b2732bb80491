# Gradients that are not finite are cleared and the batch is skipped.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Linear(4, 1)
opt = torch.optim.SGD(m.parameters(), 0.1)
for i in range(6):
    x = torch.randn(8, 4)
    opt.zero_grad()
    loss = m(x).pow(2).mean() * (float("inf") if i == 1 else 1.0)
    loss.backward()
    n = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    if not torch.isfinite(n):
        opt.zero_grad()
        continue
    opt.step()
