# The body is frozen before the new head is put in, so the head trains.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.ReLU())
        self.fc = nn.Linear(12, classes)
    def forward(self, x):
        return self.fc(self.body(x))
net = Net()
for p in net.parameters():
    p.requires_grad = False
net.fc = nn.Linear(12, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
