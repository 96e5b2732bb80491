# reduction='none' leaves one loss for each sample: grad can be implicitly created only for scalar outputs.
# finds: not-scalar
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
criterion = nn.CrossEntropyLoss(reduction="none")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x, y, weight = torch.randn(6, 4), torch.randint(0, 3, (6,)), torch.rand(6)
    loss = weight * criterion(model(x), y)  # <computed>
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
