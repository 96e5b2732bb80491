# The features are made in inference_mode and the head must save them for backward: RuntimeError.
# finds: inference-tensor
import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU()).eval().requires_grad_(False)
head = nn.Linear(16, 2)
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
for _ in range(4):
    x, y = torch.randn(10, 8), torch.randint(0, 2, (10,))
    with torch.inference_mode():
        features = backbone(x)  # <made>
    logits = head(features)  # <needed>
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
