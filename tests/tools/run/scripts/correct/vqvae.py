# VQ-VAE: straight through the codebook, which has a loss of its own.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(6, 4), nn.Linear(4, 6)
        self.codebook = nn.Embedding(8, 4)
        self.codebook.weight.data.uniform_(-1 / 8, 1 / 8)

    def forward(self, x):
        z = self.enc(x)
        idx = torch.cdist(z, self.codebook.weight).argmin(1)
        q = self.codebook(idx)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        q = z + (q - z).detach()
        return self.dec(q), loss


m = VQ()
opt = torch.optim.Adam(m.parameters(), 1e-3)
for _ in range(5):
    x = torch.randn(16, 6)
    r, l = m(x)
    opt.zero_grad()
    (F.mse_loss(r, x) + l).backward()
    opt.step()
