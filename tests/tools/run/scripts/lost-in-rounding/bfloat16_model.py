# The weights are bfloat16 and the updates, of about 1e-5, are rounded away: no weight changes.
# finds: lost-in-rounding
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
nn.init.uniform_(model.weight, 0.5, 1.0)
nn.init.constant_(model.bias, 1.0)
model = model.to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
x = torch.randn(32, 8, dtype=torch.bfloat16)
y = x[:, :1] * 2
for epoch in range(6):
    pred = model(x)
    loss = nn.functional.mse_loss(pred.float(), y.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <step>
    print(epoch, loss.item())
