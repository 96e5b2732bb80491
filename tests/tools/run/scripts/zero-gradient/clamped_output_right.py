# The prediction is not clamped in training.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
nn.init.constant_(model.bias, 20.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.rand(40, 4)
y = x.mean(dim=1, keepdim=True)
for step in range(5):
    pred = model(x)
    loss = (pred - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
