# The weights stay float32 and autocast computes in bfloat16.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
nn.init.uniform_(model.weight, 0.5, 1.0)
nn.init.constant_(model.bias, 1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
x = torch.randn(32, 8, dtype=torch.bfloat16)
y = x[:, :1] * 2
for epoch in range(6):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pred = model(x)
    loss = nn.functional.mse_loss(pred.float(), y.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
