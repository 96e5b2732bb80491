# The body is frozen after three steps, but its zero gradients stay and SGD's momentum goes on moving it.
# finds: moves-frozen
import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 1)
params = [*body.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9)
for step in range(6):
    if step == 3:
        body.requires_grad_(False)
    x = torch.randn(16, 4)
    loss = nn.functional.mse_loss(head(body(x)), x[:, :1])
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()  # <step>
