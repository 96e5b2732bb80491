# Pseudo labels: no example is confident enough yet.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
m = nn.Linear(4, 3)
opt = torch.optim.Adam(m.parameters())
for i in range(5):
    x, y, u = torch.randn(8, 4), torch.randint(0, 3, (8,)), torch.randn(16, 4)
    out = m(u)
    keep = out.softmax(1).max(1).values > 0.99
    loss = F.cross_entropy(m(x), y)
    if keep.any():
        loss = loss + F.cross_entropy(out[keep], out[keep].argmax(1).detach())
    opt.zero_grad()
    loss.backward()
    opt.step()
