# A hinge GAN with spectral norms and an averaged generator; the last bias cancels exactly.
# finds: nothing
import torch, copy
from torch import nn

torch.manual_seed(0)
G, D = (
    nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)),
    nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(2, 8)),
        nn.ReLU(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(8, 1)),
    ),
)
Ge = copy.deepcopy(G).eval()
oG, oD = (
    torch.optim.Adam(G.parameters(), 1e-3, (0.0, 0.9)),
    torch.optim.Adam(D.parameters(), 4e-3, (0.0, 0.9)),
)
for i in range(6):
    D.requires_grad_(True)
    oD.zero_grad()
    (
        torch.relu(1 - D(torch.randn(8, 2))).mean() + torch.relu(1 + D(G(torch.randn(8, 3)).detach())).mean()
    ).backward()
    oD.step()
    D.requires_grad_(False)
    oG.zero_grad()
    (-D(G(torch.randn(8, 3))).mean()).backward()
    oG.step()
    with torch.no_grad():
        for a, b in zip(Ge.parameters(), G.parameters()):
            a.copy_(b.lerp(a, 0.9))
print(Ge(torch.ones(1, 3)))
