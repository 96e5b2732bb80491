# WGAN clips the critic's weights by .data after each step; the critic is off for the generator.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 2))
C = nn.Sequential(nn.Linear(2, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1, bias=False))
opt_g = torch.optim.RMSprop(G.parameters(), lr=5e-4)
opt_c = torch.optim.RMSprop(C.parameters(), lr=5e-4)
for _ in range(3):
    C.requires_grad_(True)
    for _ in range(2):
        loss_c = C(G(torch.randn(8, 3)).detach()).mean() - C(torch.randn(8, 2) + 1).mean()
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        for p in C.parameters():
            p.data.clamp_(-0.1, 0.1)
    C.requires_grad_(False)
    opt_g.zero_grad()
    (-C(G(torch.randn(8, 3))).mean()).backward()
    opt_g.step()
