# The ReLU of the branch is not in place.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.shortcut = nn.Linear(c, c)
        self.branch = nn.Sequential(nn.ReLU(), nn.Linear(c, c))
    def forward(self, x):
        identity = self.shortcut(x)
        out = self.branch(x)
        return identity + out
net = nn.Sequential(nn.Linear(4, 8), Block(8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for i in range(5):
    x = torch.randn(16, 4)
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
