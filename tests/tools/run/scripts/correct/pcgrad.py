# PCGrad: gradients of two tasks by autograd.grad, projected, and assigned to .grad by hand.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
shared = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
params = list(shared.parameters())
optimizer = torch.optim.SGD(params, lr=0.1)
for _ in range(5):
    x = torch.randn(16, 5)
    out = shared(x)
    loss1, loss2 = (out[:, 0] - x[:, 0]).pow(2).mean(), (out[:, 1] + x[:, 0]).pow(2).mean()
    g1 = torch.autograd.grad(loss1, params, retain_graph=True)
    g2 = torch.autograd.grad(loss2, params)
    for p, a, b in zip(params, g1, g2):
        dot = (a * b).sum()
        if dot < 0:
            a = a - dot / (b * b).sum() * b
        p.grad = a + b
    optimizer.step()
