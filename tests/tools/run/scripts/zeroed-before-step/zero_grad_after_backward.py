# zero_grad() stands between backward() and step(): every step is made without gradients.
# finds: zeroed-before-step
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.rand(64, 3)
y = x.sum(1, keepdim=True)
for epoch in range(6):
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.zero_grad()  # <cleared>
    optimizer.step()  # <step>
    print(epoch, loss.item())
