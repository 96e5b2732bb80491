# WGAN with five steps of the critic for each of the generator, and clamped weights.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(
    nn.Linear(4, 16), nn.BatchNorm1d(16, 0.8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 2)
)
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1))
optG, optD = torch.optim.RMSprop(G.parameters(), lr=5e-5), torch.optim.RMSprop(D.parameters(), lr=5e-5)
for i in range(20):
    real = torch.randn(16, 2) + 3
    optD.zero_grad()
    fake = G(torch.randn(16, 4)).detach()
    loss_D = -torch.mean(D(real)) + torch.mean(D(fake))
    loss_D.backward()
    optD.step()
    for p in D.parameters():
        p.data.clamp_(-0.01, 0.01)
    if i % 5 == 0:
        optG.zero_grad()
        loss_G = -torch.mean(D(G(torch.randn(16, 4))))
        loss_G.backward()
        optG.step()
