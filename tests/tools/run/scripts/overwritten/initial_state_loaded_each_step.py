# The pretrained state is loaded at the start of each step, so every step begins from the same weights.
# finds: overwritten
import copy

import torch
from torch import nn

torch.manual_seed(0)
pretrained = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).state_dict()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
checkpoint = copy.deepcopy(pretrained)
x, y = torch.randn(30, 4), torch.randint(0, 2, (30,))
for step in range(5):
    model.load_state_dict(checkpoint)  # <written>
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <step>
    print(step, loss.item())
