# The critic gets x.detach(), so autograd.grad(score, x) says x was not used in the graph.
# finds: unused-input
import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 16), nn.Softplus(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)

def r1_penalty(real):
    real.requires_grad_(True)
    score = critic(real.detach())  # <cut>
    grad, = torch.autograd.grad(score.sum(), real, create_graph=True)  # <called>
    return score, grad.pow(2).sum(1).mean()

for _ in range(4):
    score, penalty = r1_penalty(torch.randn(8, 3))
    loss = nn.functional.softplus(-score).mean() + 5 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
