# The learning rate is 1 // 100, which is 0: each step leaves the weights as they were.
# finds: no-learning-rate
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 1)
learning_rate = 1 // 100
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)  # <made>
for epoch in range(5):
    x = torch.randn(20, 6)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <step>
    print(epoch, loss.item())
