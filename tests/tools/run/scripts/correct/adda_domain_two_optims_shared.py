# Two optimizers hold the features, and each steps after a backward of its own.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
F_, C, D = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
oC, oD, oF = (
    torch.optim.SGD([*F_.parameters(), *C.parameters()], 0.1),
    torch.optim.SGD(D.parameters(), 0.1),
    torch.optim.SGD(F_.parameters(), 0.01),
)
for _ in range(4):
    s, t, y = torch.randn(8, 4), torch.randn(8, 4) + 1, torch.randint(0, 2, (8,))
    oC.zero_grad()
    nn.functional.cross_entropy(C(torch.relu(F_(s))), y).backward()
    oC.step()
    oD.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(
        D(torch.cat([F_(s), F_(t)]).detach()), torch.tensor([1.0] * 8 + [0.0] * 8)[:, None]
    ).backward()
    oD.step()
    oF.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(D(F_(t)), torch.ones(8, 1)).backward()
    oF.step()
