# Virtual adversarial training: a backward for the direction only, cleared afterwards.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
opt = torch.optim.Adam(m.parameters())
for _ in range(4):
    x, y, u = torch.randn(4, 6), torch.randint(0, 3, (4,)), torch.randn(8, 6)
    with torch.no_grad():
        p = m(u).softmax(1)
    d = F.normalize(torch.randn_like(u), dim=1).requires_grad_()
    F.kl_div(m(u + 10 * d).log_softmax(1), p, reduction="batchmean").backward()
    d = F.normalize(d.grad, dim=1)
    m.zero_grad()
    loss = F.cross_entropy(m(x), y) + F.kl_div(m(u + d).log_softmax(1), p, reduction="batchmean")
    opt.zero_grad()
    loss.backward()
    opt.step()
