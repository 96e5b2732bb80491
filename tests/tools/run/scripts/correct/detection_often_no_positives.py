# A box loss over an often empty selection.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
cls, box = nn.Linear(4, 1), nn.Linear(4, 4)
opt = torch.optim.SGD([*cls.parameters(), *box.parameters()], 0.1)
for i in range(6):
    x = torch.randn(10, 4)
    pos = torch.zeros(10, dtype=torch.bool)
    pos[: i % 3] = True
    l = F.binary_cross_entropy_with_logits(cls(x).squeeze(1), pos.float()) + F.smooth_l1_loss(
        box(x)[pos], torch.rand(int(pos.sum()), 4), reduction="sum"
    ) / max(1, int(pos.sum()))
    opt.zero_grad()
    l.backward()
    opt.step()
