# WGAN-GP by backward(one) and backward(mone): the gradient of the critic's last bias cancels exactly.
# finds: nothing
import torch
from torch import nn, autograd

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
oG, oD = (
    torch.optim.Adam(G.parameters(), 1e-4, (0.5, 0.9)),
    torch.optim.Adam(D.parameters(), 1e-4, (0.5, 0.9)),
)
one = torch.tensor(1.0)
mone = one * -1
for it in range(4):
    for p in D.parameters():
        p.requires_grad = True
    for _ in range(5):
        D.zero_grad()
        real = torch.randn(8, 2)
        dr = D(real).mean()
        dr.backward(mone)
        with torch.no_grad():
            z = torch.randn(8, 4)
        fake = G(z).data
        df = D(fake).mean()
        df.backward(one)
        a = torch.rand(8, 1).expand(8, 2)
        inter = (a * real + (1 - a) * fake).requires_grad_(True)
        g = autograd.grad(
            outputs=D(inter),
            inputs=inter,
            grad_outputs=torch.ones(8, 1),
            create_graph=True,
            retain_graph=True,
            only_inputs=True,
        )[0]
        gp = ((g.norm(2, dim=1) - 1) ** 2).mean() * 10
        gp.backward()
        oD.step()
    for p in D.parameters():
        p.requires_grad = False
    G.zero_grad()
    gl = D(G(torch.randn(8, 4))).mean()
    gl.backward(mone)
    oG.step()
