# The learnable weights of the losses live in the criterion, whose parameters nobody gave to the optimizer.
# finds: not-held
import torch
from torch import nn

torch.manual_seed(0)

class UncertaintyLoss(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(tasks))

    def forward(self, pred, target):
        per_task = (pred - target).pow(2).mean(0)
        return (per_task * torch.exp(-self.log_var) + self.log_var).sum()

model, criterion = nn.Linear(4, 2), UncertaintyLoss(2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # <made>
for _ in range(5):
    loss = criterion(model(torch.randn(8, 4)), torch.randn(8, 2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
