# Only scheduler.step() is called, never optimizer.step(): the learning rate decays and no weight moves.
# finds: never-stepped
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # <made>
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
for epoch in range(6):
    x, y = torch.randn(16, 3), torch.randint(0, 2, (16,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    scheduler.step()
    print(epoch, scheduler.get_last_lr(), loss.item())
