# The argument of log is clamped, so both branches have a finite gradient.
# finds: nothing
import torch
from torch import nn


def entropy(p):
    return -torch.where(p > 0, p * torch.log(p.clamp(min=1e-8)), torch.zeros_like(p)).sum(-1)

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 5)
    def forward(self, obs, legal):
        return self.fc(obs).masked_fill(~legal, float("-inf")).softmax(-1)
torch.manual_seed(0)
policy, legal = Policy(), torch.tensor([True, True, False, True, True])
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2)
for _ in range(4):
    loss = -entropy(policy(torch.randn(16, 4), legal)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
