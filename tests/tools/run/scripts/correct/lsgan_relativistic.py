# A relativistic GAN: both losses compare real with fake.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
G = nn.Linear(3, 2)
D = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
oG, oD = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
for i in range(5):
    real, fake = torch.randn(8, 2) + 1, G(torch.randn(8, 3))
    dr, df = D(real), D(fake.detach())
    ld = ((dr - df.mean() - 1) ** 2).mean() + ((df - dr.mean() + 1) ** 2).mean()
    oD.zero_grad()
    ld.backward()
    oD.step()
    dr, df = D(real), D(fake)
    lg = ((dr - df.mean() + 1) ** 2).mean() + ((df - dr.mean() - 1) ** 2).mean()
    oG.zero_grad()
    lg.backward()
    oG.step()
