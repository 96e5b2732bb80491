# The body is frozen on purpose, so only the head has gradients.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Module()
model.body = nn.Sequential(nn.Linear(4, 10), nn.ReLU())
model.head = nn.Linear(10, 1)
model.body.requires_grad_(False)
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
x = torch.randn(30, 4)
y = x.prod(1, keepdim=True)
for epoch in range(5):
    pred = model.head(model.body(x))
    loss = nn.functional.mse_loss(pred, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
