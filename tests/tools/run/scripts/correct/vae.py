# A variational autoencoder with the reparameterisation trick.
# finds: nothing
import torch
from torch import nn

class VAE(nn.Module):
    def __init__(self, d=10, z=2):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 16), nn.ReLU())
        self.mu, self.log_var = nn.Linear(16, z), nn.Linear(16, z)
        self.dec = nn.Sequential(nn.Linear(z, 16), nn.ReLU(), nn.Linear(16, d))
    def forward(self, x):
        h = self.enc(x)
        mu, log_var = self.mu(h), self.log_var(h)
        z = mu + torch.randn_like(mu) * (0.5 * log_var).exp()
        kl = -0.5 * (1 + log_var - mu.pow(2) - log_var.exp()).sum(1).mean()
        return (self.dec(z) - x).pow(2).sum(1).mean() + kl
torch.manual_seed(0)
vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=1e-3)
for _ in range(5):
    optimizer.zero_grad()
    vae(torch.randn(16, 10)).backward()
    optimizer.step()
