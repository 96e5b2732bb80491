# NaN in gradients is replaced before the step.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Linear(4, 1)
opt = torch.optim.SGD(m.parameters(), 0.1)
for i in range(5):
    opt.zero_grad()
    m(torch.randn(8, 4)).pow(2).mean().mul(float("nan") if i == 2 else 1.0).backward()
    [torch.nan_to_num(p.grad, 0.0, 0.0, 0.0, out=p.grad) for p in m.parameters()]
    opt.step()
