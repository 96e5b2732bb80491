# Activation checkpointing without reentry: the blocks are run again in backward.
# finds: nothing
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.ReLU(True), nn.Dropout(0.1)) for _ in range(3))
head = nn.Linear(6, 1)
optimizer = torch.optim.Adam([*blocks.parameters(), *head.parameters()], lr=1e-3)
for _ in range(4):
    x = torch.randn(16, 6)
    h = x
    for block in blocks:
        h = checkpoint(block, h, use_reentrant=False)
    loss = (head(h) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
