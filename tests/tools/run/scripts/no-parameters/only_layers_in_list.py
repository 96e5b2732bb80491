# All layers stand in a Python list, so Adam says optimizer got an empty parameter list.
# finds: no-parameters
import torch
from torch import nn


class DeepNet(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = []
        for a, b in zip(sizes, sizes[1:]):
            self.layers.append(nn.Linear(a, b))
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x
torch.manual_seed(0)
net = DeepNet([4, 8, 8, 3])
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(4):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.randint(0, 3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
