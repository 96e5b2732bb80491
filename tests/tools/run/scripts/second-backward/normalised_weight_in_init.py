# The normalised weight is computed once in __init__, so the second batch goes through a freed graph.
# finds: second-backward
import torch
import torch.nn.functional as F
from torch import nn


class CosineClassifier(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))
        self.normed = F.normalize(self.weight, dim=1)  # <computed>

    def forward(self, x):
        return 10 * F.normalize(x, dim=1) @ self.normed.t()
if __name__ == "__main__":
    torch.manual_seed(0)
    model = CosineClassifier(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = torch.randn(9, 6), torch.arange(9) % 3
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # <second>
        optimizer.step()
