# The prediction goes through numpy and comes back without its graph: loss.backward() raises.
# finds: no-graph
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(25, 3)
y = x.sum(1, keepdim=True)

def rmse(pred, target):
    pred, target = pred.detach().numpy(), target.numpy()  # <cut>
    return torch.from_numpy(np.asarray(np.sqrt(np.mean((pred - target) ** 2))))

for epoch in range(5):
    loss = rmse(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
