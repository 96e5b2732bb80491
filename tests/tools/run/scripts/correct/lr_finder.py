# A learning rate finder raises the rate from 1e-7 and restores the weights before the real training.
# finds: nothing
import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
loss_fn, start, history = nn.MSELoss(), copy.deepcopy(model.state_dict()), []
def step(optimizer):
    x = torch.randn(32, 6)
    optimizer.zero_grad()
    loss = loss_fn(model(x), x.mean(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()
finder = torch.optim.SGD(model.parameters(), lr=1e-7)
for i in range(5):
    finder.param_groups[0]["lr"] = 1e-7 * 10 ** i
    history.append((finder.param_groups[0]["lr"], step(finder)))
model.load_state_dict(start)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
print([step(optimizer) for _ in range(5)])
