# A row of a Parameter is set to zero in __init__: a view of a leaf is being used in an in-place operation.
# finds: leaf-written
import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.table = nn.Parameter(torch.randn(n, dim))  # <made>
        self.table[0] = 0.0  # <written>

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
