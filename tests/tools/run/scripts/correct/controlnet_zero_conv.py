# ControlNet: behind a convolution of zeros, the copy gets zero gradients at first.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)


class Z(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Conv2d(1, 4, 3, padding=1).requires_grad_(False)
        self.copy = nn.Conv2d(1, 4, 3, padding=1)
        self.zero = nn.Conv2d(4, 4, 1)
        self.out = nn.Conv2d(4, 1, 1).requires_grad_(False)
        nn.init.zeros_(self.zero.weight)
        nn.init.zeros_(self.zero.bias)

    def forward(self, x, c):
        return self.out(self.base(x) + self.zero(self.copy(c)))


m = Z()
opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], 1e-3)
for _ in range(4):
    x = torch.randn(2, 1, 4, 4)
    opt.zero_grad()
    (m(x, x + 1) - x).pow(2).mean().backward()
    opt.step()
