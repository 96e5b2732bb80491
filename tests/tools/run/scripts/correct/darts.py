# DARTS: the architecture and the weights in two optimizers, stepped in turn.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.ops = nn.ModuleList([nn.Linear(4, 4), nn.Identity(), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])
        self.out = nn.Linear(4, 2)
        self.alphas = nn.Parameter(1e-3 * torch.randn(3))

    def weights(self):
        return [p for n, p in self.named_parameters() if n != "alphas"]

    def forward(self, x):
        w = self.alphas.softmax(0)
        return self.out(sum(a * o(x) for a, o in zip(w, self.ops)))


m = Cell()
wo = torch.optim.SGD(m.weights(), 0.025, momentum=0.9, weight_decay=3e-4)
ao = torch.optim.Adam([m.alphas], lr=3e-4, betas=(0.5, 0.999), weight_decay=1e-3)
for _ in range(4):
    ao.zero_grad()
    F.cross_entropy(m(torch.randn(8, 4)), torch.randint(0, 2, (8,))).backward()
    ao.step()
    wo.zero_grad()
    F.cross_entropy(m(torch.randn(8, 4)), torch.randint(0, 2, (8,))).backward()
    nn.utils.clip_grad_norm_(m.weights(), 5)
    wo.step()
