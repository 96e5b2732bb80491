# requires_grad is set on a loss without a graph to silence the error: backward runs and nothing trains.
# finds: no-gradient
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x, y = torch.randn(24, 4), torch.randint(0, 3, (24,))
for epoch in range(5):
    output = model(x)
    pred = output.argmax(dim=1).float()  # <cut>
    loss = F.mse_loss(pred, y.float())
    loss.requires_grad = True
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
