# A device context and a mode of the user's own stand around the training loop.
# finds: nothing
import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class Count(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        Count.calls += 1
        return func(*args, **(kwargs or {}))


torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
with torch.device("cpu"):
    for step in range(8):
        with Count():
            loss = net(torch.randn(8, 4)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        with Count():
            opt.step()
print(Count.calls, torch.overrides._len_torch_function_stack())
