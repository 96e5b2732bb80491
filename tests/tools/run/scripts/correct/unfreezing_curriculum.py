# The body is frozen for three steps and then unfrozen and added to the optimizer.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Sequential(nn.Linear(5, 10), nn.Tanh()), nn.Linear(10, 2)
body.requires_grad_(False)
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
for step in range(6):
    if step == 3:
        body.requires_grad_(True)
        optimizer.add_param_group({"params": body.parameters(), "lr": 1e-3})
    loss = nn.functional.cross_entropy(head(body(torch.randn(8, 5))), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
