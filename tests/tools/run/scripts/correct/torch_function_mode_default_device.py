# A function mode of the user's own counts calls, as without us.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
torch.set_default_device("cpu")
torch.set_default_dtype(torch.float64)
m = nn.Linear(4, 1)
opt = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(4):
    opt.zero_grad()
    m(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
from torch.overrides import TorchFunctionMode


class Count(TorchFunctionMode):
    n = 0

    def __torch_function__(self, f, t, a=(), k=None):
        Count.n += 1
        return f(*a, **(k or {}))


with Count():
    opt.zero_grad()
    m(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
print(Count.n)
