# A contrastive loss on all pairwise distances, [n, 1, d] minus [1, n, d], with eps under the root.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(5):
    x, label = torch.randn(12, 6), torch.arange(12) % 3
    z = net(x)
    dist = ((z.unsqueeze(1) - z.unsqueeze(0)).pow(2).sum(-1) + 1e-8).sqrt()
    same = (label.unsqueeze(1) == label.unsqueeze(0)).float()
    loss = (same * dist.pow(2) + (1 - same) * (1 - dist).clamp(min=0).pow(2)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
