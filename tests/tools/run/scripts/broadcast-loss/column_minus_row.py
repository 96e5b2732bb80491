# pred is [32, 1] and target [32], so their difference is [32, 32] and the model learns the mean.
# finds: broadcast-loss
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(32, 3)
target = x @ torch.tensor([1.0, -2.0, 0.5])
model = nn.Linear(3, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for epoch in range(6):
    pred = model(x)
    loss = ((pred - target) ** 2).mean()  # <computed>
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
