# VQ-VAE whose codebook is no parameter and follows by averages.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
enc, dec = nn.Linear(6, 4), nn.Linear(4, 6)
codebook = torch.randn(8, 4)
n = torch.ones(8)
s = codebook.clone()
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()])
for _ in range(5):
    x = torch.randn(16, 6)
    z = enc(x)
    with torch.no_grad():
        idx = torch.cdist(z, codebook).argmin(1)
        one = F.one_hot(idx, 8).float()
        n.mul_(0.9).add_(one.sum(0), alpha=0.1)
        s.mul_(0.9).add_(one.T @ z, alpha=0.1)
        codebook.copy_(s / (n + 1e-5)[:, None])
    q = codebook[idx]
    loss = F.mse_loss(dec(z + (q - z).detach()), x) + 0.25 * F.mse_loss(z, q)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
