# zero_grad() is never called, so each step uses the sum of all gradients so far.
# finds: never-cleared
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.MSELoss()
for epoch in range(6):
    inputs = torch.rand(32, 2)
    targets = inputs.prod(1, keepdim=True)
    loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()  # <step>
    print(epoch, loss.item())
