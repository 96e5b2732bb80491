# BYOL: a target in training mode, without gradients, that follows the online network.
# finds: nothing
import torch, copy
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
online = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
target = copy.deepcopy(online)
for p in target.parameters():
    p.requires_grad = False
pred = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Linear(16, 4))
opt = torch.optim.SGD([*online.parameters(), *pred.parameters()], lr=0.05, momentum=0.9)


def loss_fn(a, b):
    return (2 - 2 * F.cosine_similarity(a, b, dim=-1)).mean()


for _ in range(5):
    x = torch.randn(16, 6)
    v1, v2 = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    p1, p2 = pred(online(v1)), pred(online(v2))
    with torch.no_grad():
        t1, t2 = target(v1), target(v2)
    loss = loss_fn(p1, t2.detach()) + loss_fn(p2, t1.detach())
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for o, t in zip(online.parameters(), target.parameters()):
            t.data = 0.99 * t.data + 0.01 * o.data
