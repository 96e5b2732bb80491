# The weights are kept aside during the evaluation and put back after it.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
ema = [p.detach().clone() for p in model.parameters()]
x = torch.randn(40, 3)
y = x.sum(1, keepdim=True)
for epoch in range(6):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    for e, p in zip(ema, model.parameters()):
        e.mul_(0.999).add_(p.data, alpha=0.001)
    kept = [p.detach().clone() for p in model.parameters()]
    for e, p in zip(ema, model.parameters()):
        p.data.copy_(e)
    with torch.no_grad():
        print(epoch, nn.functional.mse_loss(model(x), y).item())
    for k, p in zip(kept, model.parameters()):
        p.data.copy_(k)
