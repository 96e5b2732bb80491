# The head's parameters are in the optimizer of the whole model and in their own one; both step each time.
# finds: held-twice
import torch
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 10), nn.ReLU())
        self.head = nn.Linear(10, 1)

    def forward(self, x):
        return self.head(self.body(x))
net = Net()
opt_body = torch.optim.Adam(net.parameters(), lr=1e-4)
opt_head = torch.optim.Adam(net.head.parameters(), lr=1e-2)  # <made>
for _ in range(5):
    opt_body.zero_grad()
    opt_head.zero_grad()
    net(torch.randn(8, 5)).sub(1).pow(2).mean().backward()
    opt_body.step()
    opt_head.step()
