# An optimizer per parameter, stepped in a hook of backward.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opts = {p: torch.optim.Adam([p], foreach=False) for p in m.parameters()}


def hook(p):
    opts[p].step()
    opts[p].zero_grad()


for p in m.parameters():
    p.register_post_accumulate_grad_hook(hook)
for _ in range(5):
    x = torch.randn(8, 4)
    (m(x) - x[:, :1]).pow(2).mean().backward()
