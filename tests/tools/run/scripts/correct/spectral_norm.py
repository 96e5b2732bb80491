# Spectral normalisation, whose power iteration writes buffers in each forward, twice before backward.
# finds: nothing
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(0)
last = spectral_norm(nn.Linear(16, 1, bias=False))
critic = nn.Sequential(spectral_norm(nn.Linear(4, 16)), nn.ReLU(), last)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for _ in range(5):
    real, fake = torch.randn(8, 4) + 1, torch.randn(8, 4)
    loss = (1 - critic(real)).relu().mean() + (1 + critic(fake)).relu().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
