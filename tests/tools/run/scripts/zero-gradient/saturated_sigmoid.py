# The features are not scaled (square metres, prices), so the sigmoid is exactly 0 or 1 and its gradient zero.
# finds: zero-gradient
import torch
from torch import nn

torch.manual_seed(0)
x = torch.rand(50, 3) * torch.tensor([5e5, 8e6, 2e6]) + 1e6
y = (x[:, :1] > 1.2e6).float()
model = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
