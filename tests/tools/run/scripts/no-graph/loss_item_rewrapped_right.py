# The losses are stacked, not rewrapped.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.MSELoss()
for epoch in range(5):
    x, y = torch.randn(10, 6), torch.randn(10, 3)
    out = model(x)
    task_losses = [criterion(out[:, i], y[:, i]) for i in range(3)]
    loss = torch.stack(task_losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
