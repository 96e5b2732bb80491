# A padded row is zero, and the root of the sum of its squares has an infinite derivative: nan gradients.
# finds: nan-gradient
import torch
from torch import nn


def length(v):
    return torch.sqrt(torch.sum(v * v, dim=-1))  # <computed>

def main():
    torch.manual_seed(0)
    proj = nn.Linear(3, 4, bias=False)
    opt = torch.optim.SGD(proj.parameters(), lr=0.1)
    for step in range(4):
        batch = torch.randn(6, 3)
        batch[-1] = 0  # padding
        loss = (length(proj(batch)) - length(batch)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())

main()
