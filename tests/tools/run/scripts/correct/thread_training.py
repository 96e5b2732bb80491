# A thread trains first, then the main one.
# finds: nothing
import torch, threading
from torch import nn

torch.manual_seed(0)
m = nn.Linear(4, 1)
opt = torch.optim.SGD(m.parameters(), 0.1)
x = [torch.randn(8, 4) for _ in range(4)]


def work():
    for v in x:
        opt.zero_grad()
        m(v).pow(2).mean().backward()
        opt.step()


t = threading.Thread(target=work)
t.start()
t.join()
for v in x:
    opt.zero_grad()
    m(v).pow(2).mean().backward()
    opt.step()
