# The loss is one minus the accuracy, and argmax has no gradient: element 0 of tensors does not require grad.
# finds: no-graph
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(30, 4), torch.randint(0, 3, (30,))
for epoch in range(5):
    logits = net(x)
    acc = (logits.argmax(dim=1) == y).float().mean()  # <cut>
    loss = 1 - acc
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("acc", acc.item())
