# A support vector machine whose margins are soon met; two equal weights move alike.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
x = torch.cat([torch.randn(10, 2) + 4, torch.randn(10, 2) - 4])
y = torch.tensor([1.0] * 10 + [-1.0] * 10)
w = nn.Linear(2, 1)
w.weight.data.fill_(0.5)
w.bias.data.zero_()
opt = torch.optim.SGD(w.parameters(), 0.1)
for i in range(8):
    opt.zero_grad()
    (torch.clamp(1 - y * w(x).squeeze(), min=0).mean() + 0.01 * w.weight.pow(2).sum()).backward()
    opt.step()
