# The distance of each point to itself is sqrt(0), whose derivative is infinite: all gradients are nan.
# finds: nan-gradient
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(12, 5)
target = torch.cdist(x, x)
for epoch in range(4):
    z = net(x)
    diff = z[:, None, :] - z[None, :, :]
    dist = (diff ** 2).sum(dim=-1).sqrt()  # <computed>
    stress = (dist - target).pow(2).mean()
    optimizer.zero_grad()
    stress.backward()
    optimizer.step()
    print(epoch, stress.item())
