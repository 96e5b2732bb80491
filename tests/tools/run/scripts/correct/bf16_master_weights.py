# A model in bfloat16 whose master copy in float32 is what the optimizer holds.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).bfloat16()
master = [p.detach().clone().float().requires_grad_() for p in m.parameters()]
opt = torch.optim.Adam(master, 1e-4)
for _ in range(5):
    x = torch.randn(8, 6, dtype=torch.bfloat16)
    m.zero_grad()
    (m(x) - x[:, :1]).pow(2).mean().backward()
    for p, q in zip(m.parameters(), master):
        q.grad = p.grad.float()
    opt.step()
    with torch.no_grad():
        for p, q in zip(m.parameters(), master):
            p.copy_(q)
