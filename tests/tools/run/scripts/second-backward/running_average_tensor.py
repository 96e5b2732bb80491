# The running average of the loss is a tensor with all the old graphs in it: its second backward raises.
# finds: second-backward
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loss_fn = nn.CrossEntropyLoss()
avg_loss = 0.0

for it in range(6):
    data, target = torch.randn(16, 5), torch.randint(0, 2, (16,))
    loss = loss_fn(model(data), target)
    avg_loss = 0.9 * avg_loss + 0.1 * loss
    optimizer.zero_grad()
    avg_loss.backward()  # <second>
    optimizer.step()
    print(it, float(avg_loss))
