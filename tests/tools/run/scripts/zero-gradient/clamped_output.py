# The prediction is clamped to [0, 1] and lies above 1 for all samples, so nothing gets a gradient but zero.
# finds: zero-gradient
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
nn.init.constant_(model.bias, 20.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.rand(40, 4)
y = x.mean(dim=1, keepdim=True)
for step in range(5):
    pred = model(x).clamp(0.0, 1.0)  # <computed>
    loss = (pred - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
