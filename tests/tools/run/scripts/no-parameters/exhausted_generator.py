# The generator of the parameters is used up by counting them, so SGD gets an empty list and raises.
# finds: no-parameters
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
params = model.parameters()
print("trainable parameters:", sum(p.numel() for p in params if p.requires_grad))
optimizer = torch.optim.SGD(params, lr=0.1)
for _ in range(4):
    x = torch.randn(10, 3)
    loss = (model(x) - x[:, :1]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
