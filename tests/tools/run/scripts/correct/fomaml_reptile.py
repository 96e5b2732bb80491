# Reptile that loads interpolated weights after some steps of an inner optimizer.
# finds: nothing
import torch, copy
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
meta = torch.optim.SGD(net.parameters(), 0.1)
for it in range(4):
    before = copy.deepcopy(net.state_dict())
    inner = torch.optim.SGD(net.parameters(), 0.02)
    x = torch.randn(10, 1)
    for k in range(3):
        inner.zero_grad()
        F.mse_loss(net(x), x.sin()).backward()
        inner.step()
    after = net.state_dict()
    net.load_state_dict({n: before[n] + (after[n] - before[n]) * 0.5 for n in before})
