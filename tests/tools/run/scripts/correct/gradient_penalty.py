# WGAN-GP: the norm of the critic's input gradient enters the loss (double backward).
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)

def gradient_penalty(real, fake):
    alpha = torch.rand(len(real), 1)
    x = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    grad, = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return (grad.norm(2, dim=1) - 1).pow(2).mean()

for _ in range(5):
    real, fake = torch.randn(8, 2) + 1, torch.randn(8, 2)
    loss = (critic(fake) ** 2).mean() - critic(real).mean() + 10 * gradient_penalty(real, fake)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
