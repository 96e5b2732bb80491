# Two models share an embedding on purpose.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
emb = nn.Embedding(10, 4)


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = emb
        self.h = nn.Linear(4, 2)

    def forward(self, i):
        return self.h(self.emb(i).mean(1))


a, b = M(), M()
opt = torch.optim.Adam({id(p): p for m in (a, b) for p in m.parameters()}.values())
for _ in range(4):
    i = torch.randint(0, 10, (8, 3))
    y = torch.randint(0, 2, (8,))
    opt.zero_grad()
    (nn.functional.cross_entropy(a(i), y) + nn.functional.cross_entropy(b(i), y)).backward()
    opt.step()
