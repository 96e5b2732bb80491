# Maximum classifier discrepancy: three phases with two optimizers.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
G, c1, c2 = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
oG = torch.optim.Adam(G.parameters())
oC = torch.optim.Adam([*c1.parameters(), *c2.parameters()])
ce = nn.CrossEntropyLoss()
for _ in range(3):
    s, t, y = torch.randn(8, 4), torch.randn(8, 4), torch.randint(0, 2, (8,))
    oG.zero_grad()
    oC.zero_grad()
    f = G(s)
    (ce(c1(f), y) + ce(c2(f), y)).backward()
    oG.step()
    oC.step()
    oC.zero_grad()
    oG.zero_grad()
    f, ft = G(s), G(t)
    (ce(c1(f), y) + ce(c2(f), y) - (c1(ft).softmax(1) - c2(ft).softmax(1)).abs().mean()).backward()
    oC.step()
    for _ in range(2):
        oG.zero_grad()
        ft = G(t)
        (c1(ft).softmax(1) - c2(ft).softmax(1)).abs().mean().backward()
        oG.step()
