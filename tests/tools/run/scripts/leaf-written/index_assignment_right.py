# The row is set to zero under no_grad.
# finds: nothing
import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.table = nn.Parameter(torch.randn(n, dim))
        with torch.no_grad():
            self.table[0] = 0.0

    def forward(self, ids):
        return self.table[ids].sum(1)
if __name__ == "__main__":
    torch.manual_seed(0)
    model = Embedder(10, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        loss = (model(torch.randint(1, 10, (6, 3))) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
