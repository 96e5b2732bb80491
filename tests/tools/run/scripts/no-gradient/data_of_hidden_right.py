# The clamp is applied to hidden itself.
# finds: nothing
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    fc1, fc2 = nn.Linear(4, 16), nn.Linear(16, 1)
    optimizer = torch.optim.SGD(list(fc1.parameters()) + list(fc2.parameters()), lr=0.01)
    for step in range(5):
        x = torch.randn(10, 4)
        hidden = fc1(x)
        hidden = torch.clamp(hidden, min=0, max=6)
        loss = (fc2(hidden) - x.mean(1, keepdim=True)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())

main()
