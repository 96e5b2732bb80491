# A network with an early exit: when the first exit is taken, the later layers get no gradient.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)

class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage1, self.exit1 = nn.Linear(4, 8), nn.Linear(8, 2)
        self.stage2, self.exit2 = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x, early):
        h = torch.relu(self.stage1(x))
        return self.exit1(h) if early else self.exit2(torch.relu(self.stage2(h)))
net = EarlyExit()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    out = net(torch.randn(8, 4), early=step % 3 != 2)
    loss = nn.functional.cross_entropy(out, torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
