# gate + 1 makes a new tensor, so the output of sigmoid stays as it was.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)

class GatedBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.value = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        gate = gate + 1
        return self.value(x) * gate
model = GatedBlock(6)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 6)).pow(2).mean()
    loss.backward()
    optimizer.step()
