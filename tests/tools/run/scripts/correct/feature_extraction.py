# Features are extracted once under no_grad and a head is trained on them.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU()).eval()
x, y = torch.randn(40, 10), torch.randint(0, 3, (40,))
with torch.no_grad():
    features = backbone(x)

head = nn.Linear(20, 3)
optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
for epoch in range(5):
    for i in range(0, 40, 20):
        loss = nn.functional.cross_entropy(head(features[i:i + 20]), y[i:i + 20])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
