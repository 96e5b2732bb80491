# Two networks teach each other by detached predictions.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
a, b = nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
oa, ob = torch.optim.SGD(a.parameters(), 0.1), torch.optim.SGD(b.parameters(), 0.1)
for _ in range(4):
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    pa, pb = a(x), b(x)
    la = F.cross_entropy(pa, y) + F.kl_div(pa.log_softmax(1), pb.detach().softmax(1), reduction="batchmean")
    lb = F.cross_entropy(pb, y) + F.kl_div(pb.log_softmax(1), pa.detach().softmax(1), reduction="batchmean")
    oa.zero_grad()
    la.backward()
    oa.step()
    ob.zero_grad()
    lb.backward()
    ob.step()
