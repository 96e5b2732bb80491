# The backbone is frozen but left in train mode, so the running statistics of its BatchNorm go on moving.
# finds: frozen-statistics
import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
head = nn.Linear(64, 2)
for p in backbone.parameters():
    p.requires_grad = False
optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
backbone.train()
head.train()
for _ in range(5):
    x, y = torch.randn(6, 1, 6, 6) * 3 + 1, torch.randint(0, 2, (6,))
    loss = nn.functional.cross_entropy(head(backbone(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
