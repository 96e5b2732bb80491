# The optimizer is made for the copy.
# finds: nothing
import copy

import torch
from torch import nn

torch.manual_seed(0)

def run_fold(base, x, y):
    model = copy.deepcopy(base)  # a fresh model for each fold
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()

base = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
for fold in range(2):
    print(fold, run_fold(base, torch.randn(12, 3), torch.randint(0, 2, (12, 1)).float()))
