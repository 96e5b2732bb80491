# F.relu without inplace leaves the output of tanh alone.
# finds: nothing
import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(0)
    fc1, fc2 = nn.Linear(4, 16), nn.Linear(16, 1)
    opt = torch.optim.SGD([*fc1.parameters(), *fc2.parameters()], lr=0.05)
    x, y = torch.randn(32, 4), torch.randn(32, 1)
    for epoch in range(5):
        h = torch.tanh(fc1(x))
        h = F.relu(h)
        loss = F.mse_loss(fc2(h), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(epoch, loss.item())

if __name__ == "__main__":
    main()
