# The copy of the model is trained while the optimizer holds the original: no weight moves.
# finds: not-held
import copy

import torch
from torch import nn

torch.manual_seed(0)

def run_fold(base, x, y):
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)  # <made>
    model = copy.deepcopy(base)  # a fresh model for each fold
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()

base = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
for fold in range(2):
    print(fold, run_fold(base, torch.randn(12, 3), torch.randint(0, 2, (12, 1)).float()))
