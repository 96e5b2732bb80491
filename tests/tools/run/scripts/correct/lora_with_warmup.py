# LoRA with B at zero and a warmup from 0: A has zero gradients in the first two steps.
# finds: nothing
import torch
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))
    def forward(self, x):
        return self.base(x) + x @ self.A.t() @ self.B.t()
torch.manual_seed(0)
model = nn.Sequential(LoRALinear(nn.Linear(6, 8)), nn.Tanh(), LoRALinear(nn.Linear(8, 2)))
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, step / 2))
for _ in range(6):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
