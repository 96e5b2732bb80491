# Gradients of four micro-batches are summed before each step.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
accumulation_steps = 4
optimizer.zero_grad()
for i in range(12):
    x, y = torch.randn(4, 6), torch.randint(0, 3, (4,))
    loss = nn.functional.cross_entropy(model(x), y) / accumulation_steps
    loss.backward()
    if (i + 1) % accumulation_steps == 0:
        optimizer.step()
        optimizer.zero_grad()
