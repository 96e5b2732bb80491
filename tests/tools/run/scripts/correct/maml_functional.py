# MAML by torch.func: the inner step under vmap and grad.
# finds: nothing
import torch
from torch import nn
from torch.func import functional_call, vmap, grad

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)


def task_loss(params, x, y):
    return ((functional_call(net, params, x) - y) ** 2).mean()


for _ in range(4):
    params = dict(net.named_parameters())
    xs, ys = torch.randn(3, 10, 1), torch.randn(3, 10, 1)

    def inner(x1, y1, x2, y2):
        g = grad(task_loss)(params, x1, y1)
        return task_loss({k: params[k] - 0.1 * g[k] for k in g}, x2, y2)

    loss = vmap(inner)(xs, ys, xs, ys).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
