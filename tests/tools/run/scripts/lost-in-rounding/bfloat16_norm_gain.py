# The gain of a norm is 1 in bfloat16 and Adam's step of 1e-4 is far below its spacing: it stays 1.
# finds: lost-in-rounding
import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, dtype):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim, dtype=dtype))

    def forward(self, x):
        return self.gain * x / x.pow(2).mean(-1, keepdim=True).add(1e-6).sqrt()

torch.manual_seed(0)
norm = RMSNorm(6, torch.bfloat16)
optimizer = torch.optim.AdamW(norm.parameters(), lr=1e-4)
for _ in range(5):
    x = torch.randn(16, 6)
    loss = (norm(x) - 3 * x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <step>
