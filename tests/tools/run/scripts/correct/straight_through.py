# A vector quantiser with the straight-through estimator, codebook and commitment losses.
# finds: nothing
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
enc, dec, codes = nn.Linear(6, 3), nn.Linear(3, 6), nn.Embedding(8, 3)
params = [*enc.parameters(), *dec.parameters(), *codes.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-2)
for _ in range(5):
    x = torch.randn(32, 6)
    z = enc(x)
    nearest = torch.cdist(z, codes.weight).argmin(dim=1)
    q = codes(nearest)
    loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
    q = z + (q - z).detach()
    loss = loss + F.mse_loss(dec(q), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
