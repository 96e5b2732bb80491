# The warmup factor is epoch // 5, which is 0 in all five epochs: every step has learning rate 0.
# finds: no-learning-rate
import torch
from torch import nn


def warmup(epoch):
    return min(1, epoch // 5)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup)
for epoch in range(5):
    x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <step>
    scheduler.step()
