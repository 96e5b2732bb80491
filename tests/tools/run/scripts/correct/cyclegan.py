# CycleGAN freezes the discriminators while the generators step.
# finds: nothing
import torch, itertools
from torch import nn

torch.manual_seed(0)
GA, GB, DA, DB = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(2, 1)
oG = torch.optim.Adam(itertools.chain(GA.parameters(), GB.parameters()), lr=1e-3)
oD = torch.optim.Adam(itertools.chain(DA.parameters(), DB.parameters()), lr=1e-3)
mse, l1 = nn.MSELoss(), nn.L1Loss()


def set_requires_grad(nets, r):
    for n in nets:
        for p in n.parameters():
            p.requires_grad = r


for _ in range(4):
    A, B = torch.randn(8, 2), torch.randn(8, 2) + 1
    fB = GA(A)
    rA = GB(fB)
    fA = GB(B)
    rB = GA(fA)
    set_requires_grad([DA, DB], False)
    oG.zero_grad()
    lG = (
        mse(DA(fB), torch.ones(8, 1))
        + mse(DB(fA), torch.ones(8, 1))
        + 10 * (l1(rA, A) + l1(rB, B))
        + 5 * (l1(GA(B), B) + l1(GB(A), A))
    )
    lG.backward()
    oG.step()
    set_requires_grad([DA, DB], True)
    oD.zero_grad()
    for D, real, fake in ((DA, B, fB), (DB, A, fA)):
        ((mse(D(real), torch.ones(8, 1)) + mse(D(fake.detach()), torch.zeros(8, 1))) * 0.5).backward()
    oD.step()
