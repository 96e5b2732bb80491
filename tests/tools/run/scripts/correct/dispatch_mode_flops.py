# A mode of the user's own sees every operation, and only the script's.
# finds: nothing
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torch.utils._python_dispatch import TorchDispatchMode

torch.manual_seed(0)
m = nn.Linear(4, 1)
opt = torch.optim.SGD(m.parameters(), 0.1)
names = []


class Log(TorchDispatchMode):
    def __torch_dispatch__(self, f, t, a=(), k=None):
        names.append(str(f))
        return f(*a, **(k or {}))


for i in range(4):
    with Log():
        opt.zero_grad()
        m(torch.randn(8, 4)).pow(2).mean().backward()
        opt.step()
with FlopCounterMode(display=False) as fc:
    m(torch.randn(8, 4)).sum().backward()
print(names, fc.get_total_flops())
