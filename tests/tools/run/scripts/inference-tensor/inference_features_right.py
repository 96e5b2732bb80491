# The features are made under no_grad.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU()).eval().requires_grad_(False)
head = nn.Linear(16, 2)
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
for _ in range(4):
    x, y = torch.randn(10, 8), torch.randint(0, 2, (10,))
    with torch.no_grad():
        features = backbone(x)
    logits = head(features)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
