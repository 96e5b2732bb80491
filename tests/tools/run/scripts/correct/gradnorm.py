# GradNorm: weights of the losses are trained by gradients of gradient norms, set by hand.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
trunk, heads = nn.Linear(4, 8), nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 1)])
w = nn.Parameter(torch.ones(2))
opt, wo = torch.optim.Adam([*trunk.parameters(), *heads.parameters()]), torch.optim.Adam([w], 0.01)
for t in range(4):
    x = torch.randn(8, 4)
    h = trunk(x)
    L = torch.stack([(heads[0](h) - x[:, :1]).pow(2).mean(), (heads[1](h) - 5 * x[:, 1:2]).pow(2).mean()])
    if t == 0:
        L0 = L.detach()
    opt.zero_grad()
    (w.detach() * L).sum().backward(retain_graph=True)
    norms = torch.stack(
        [
            torch.autograd.grad(w[i] * L[i], trunk.weight, retain_graph=True, create_graph=True)[0].norm()
            for i in range(2)
        ]
    )
    r = L.detach() / L0
    r = r / r.mean()
    gl = (norms - (norms.mean() * r**1.5).detach()).abs().sum()
    w.grad = torch.autograd.grad(gl, w)[0]
    opt.step()
    wo.step()
    w.data = 2 * w.data / w.data.sum()
