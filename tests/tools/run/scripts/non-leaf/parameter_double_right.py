# The tensor is made double before it becomes a Parameter.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(20, 3, dtype=torch.double)
y = x @ torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.double)
weight = nn.Parameter(torch.randn(3, 1).double())
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(5):
    loss = (x @ weight - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
