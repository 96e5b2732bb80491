# The binary code is straight-through: h + (code - h).detach().
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)

class BinaryAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(10, 6), nn.Linear(6, 10)
    def forward(self, x):
        h = torch.sigmoid(self.enc(x))
        code = (h > 0.5).float()
        code = h + (code - h).detach()
        return self.dec(code)
net = BinaryAE()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
x = torch.randn(20, 10)
for _ in range(5):
    loss = (net(x) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
