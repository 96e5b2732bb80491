# u is computed from x only, so autograd.grad(u, t) raises: not used in the graph.
# finds: unused-input
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.rand(20, 1, requires_grad=True)
t = torch.rand(20, 1, requires_grad=True)
for _ in range(4):
    u = net(torch.cat([x, x], dim=1))
    u_x, = torch.autograd.grad(u.sum(), x, create_graph=True)
    u_t, = torch.autograd.grad(u.sum(), t, create_graph=True)  # <called>
    residual = (u_t + u * u_x).pow(2).mean()
    boundary = (u - torch.sin(x)).pow(2).mean()
    loss = residual + boundary
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
