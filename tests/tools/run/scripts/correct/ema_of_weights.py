# An exponential moving average of the weights is kept beside the model and evaluated.
# finds: nothing
import copy

import torch
from torch import nn

class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay
    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.mul_(self.decay).add_(p, alpha=1 - self.decay)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 10), nn.SiLU(), nn.Linear(10, 1))
ema, opt = EMA(net, 0.9), torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(20, 5)
    opt.zero_grad()
    nn.functional.mse_loss(net(x), x[:, :1]).backward()
    opt.step()
    ema.update(net)
print(ema.model(torch.ones(1, 5)).item())
