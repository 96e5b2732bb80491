# Barlow twins: a bias before a normalisation gets noise for a gradient.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
bn = nn.BatchNorm1d(4, affine=False)
opt = torch.optim.SGD(net.parameters(), 1e-2)
for _ in range(5):
    x = torch.randn(32, 6)
    za, zb = net(x + 0.1 * torch.randn_like(x)), net(x + 0.1 * torch.randn_like(x))
    c = bn(za).T @ bn(zb) / 32
    on = torch.diagonal(c).add_(-1).pow_(2).sum()
    off = c.flatten()[:-1].view(3, 5)[:, 1:].flatten().pow_(2).sum()
    std = F.relu(1 - (za.var(0) + 1e-4).sqrt()).mean()
    loss = on + 5e-3 * off + std
    opt.zero_grad()
    loss.backward()
    opt.step()
