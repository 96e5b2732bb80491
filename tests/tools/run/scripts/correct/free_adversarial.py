# Free adversarial training: the perturbation is a leaf that is updated by hand.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
m = nn.Linear(6, 2)
opt = torch.optim.SGD(m.parameters(), 0.1)
delta = torch.zeros(8, 6, requires_grad=True)
for _ in range(3):
    x, y = torch.rand(8, 6), torch.randint(0, 2, (8,))
    for r in range(3):
        opt.zero_grad()
        F.cross_entropy(m(x + delta), y).backward()
        opt.step()
        delta.data = (delta + 0.05 * delta.grad.sign()).detach().clamp(-0.1, 0.1)
        delta.grad.zero_()
