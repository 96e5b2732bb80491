# The hidden layers stand in an nn.ModuleList.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)

class MLP(nn.Module):
    def __init__(self, dim=4, depth=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(dim, dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 1)
    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)
model = MLP()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(5):
    x = torch.randn(16, 4)
    loss = (model(x) - x[:, :1]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
