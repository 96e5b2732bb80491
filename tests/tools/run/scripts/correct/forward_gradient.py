# Forward gradients: directional derivatives by jvp, set by hand.
# finds: nothing
import torch
from torch import nn
from torch.func import jvp, functional_call

torch.manual_seed(0)
m = nn.Linear(3, 1)
opt = torch.optim.SGD(m.parameters(), 0.05)
for _ in range(4):
    x = torch.randn(16, 3)
    ps = {k: p.detach() for k, p in m.named_parameters()}
    vs = {k: torch.randn_like(p) for k, p in ps.items()}
    _, d = jvp(lambda p: (functional_call(m, p, x) - 1).pow(2).mean(), (ps,), (vs,))
    for k, p in m.named_parameters():
        p.grad = d * vs[k]
    opt.step()
    opt.zero_grad()
