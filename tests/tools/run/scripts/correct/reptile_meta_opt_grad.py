# Reptile: the gradient of the outer optimizer is set by hand, no backward reaches it.
# finds: nothing
import torch, copy
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
net = nn.Linear(2, 1)
meta = torch.optim.Adam(net.parameters(), 1e-2)
for it in range(4):
    fast = copy.deepcopy(net)
    inner = torch.optim.SGD(fast.parameters(), 0.05)
    for _ in range(2):
        x = torch.randn(8, 2)
        inner.zero_grad()
        F.mse_loss(fast(x), x[:, :1]).backward()
        inner.step()
    for p, q in zip(net.parameters(), fast.parameters()):
        p.grad = p.data - q.data
    meta.step()
    meta.zero_grad()
