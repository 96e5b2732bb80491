# The scores are masked out of place, before softmax.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)

class SelfAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / x.shape[-1] ** 0.5
        mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        weights = scores.masked_fill(mask, float('-inf')).softmax(-1)
        return weights @ v
attn = SelfAttention(8)
opt = torch.optim.AdamW(attn.parameters(), lr=1e-3)
for _ in range(4):
    opt.zero_grad()
    attn(torch.randn(2, 5, 8)).pow(2).mean().backward()
    opt.step()
