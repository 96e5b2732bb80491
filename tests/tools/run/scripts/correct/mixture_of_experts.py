# Top-1 routing: an expert that no sample of the batch chose has no gradient in that step.
# finds: nothing
import torch
from torch import nn

class MoE(nn.Module):
    def __init__(self, dim=6, n=3):
        super().__init__()
        self.gate, self.experts = nn.Linear(dim, n), nn.ModuleList([nn.Linear(dim, 1) for _ in range(n)])
    def forward(self, x):
        weight, index = self.gate(x).softmax(-1).max(-1)
        out = x.new_zeros(len(x), 1)
        for i, expert in enumerate(self.experts):
            rows = (index == i).nonzero().squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, weight[rows, None] * expert(x[rows]))
        return out
torch.manual_seed(0)
moe = MoE()
opt = torch.optim.Adam(moe.parameters(), lr=1e-2)
for x in torch.randn(6, 4, 6):
    opt.zero_grad()
    nn.functional.mse_loss(moe(x), x.sum(1, keepdim=True)).backward()
    opt.step()
