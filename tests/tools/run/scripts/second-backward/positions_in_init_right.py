# The positions are projected in forward.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)

class Tagger(nn.Module):
    def __init__(self, length=6, dim=8):
        super().__init__()
        self.tok, self.out = nn.Embedding(20, dim), nn.Linear(dim, 4)
        self.pos_mlp = nn.Sequential(nn.Linear(1, dim), nn.Tanh())
        self.steps = torch.arange(length).float().unsqueeze(1) / length

    def forward(self, ids):
        return self.out(self.tok(ids) + self.pos_mlp(self.steps))

net = Tagger()
opt = torch.optim.Adam(net.parameters())
for _ in range(4):
    ids = torch.randint(0, 20, (3, 6))
    opt.zero_grad()
    nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten() % 4).backward()
    opt.step()
