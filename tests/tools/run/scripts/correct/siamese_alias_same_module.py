# A siamese network: one module by two names.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
left = nn.Linear(4, 2)
right = left
opt = torch.optim.SGD(left.parameters(), 0.1)
for _ in range(4):
    x = torch.randn(8, 4)
    opt.zero_grad()
    (left(x) - right(x + 0.1)).pow(2).mean().add((left(x) - 1).pow(2).mean()).backward()
    opt.step()
