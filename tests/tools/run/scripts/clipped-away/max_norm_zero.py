# clip_grad_norm_ is called with max_norm=0.0, which makes every gradient zero.
# finds: clipped-away
import torch
from torch import nn

config = {"lr": 0.1, "clip": 0.0}

torch.manual_seed(0)
rnn, head = nn.GRU(2, 6), nn.Linear(6, 2)
params = [*rnn.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(params, lr=config["lr"])
for _ in range(5):
    out, _ = rnn(torch.randn(7, 4, 2))
    loss = nn.functional.cross_entropy(head(out[-1]), torch.randint(0, 2, (4,)))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, config["clip"])  # <called>
    optimizer.step()
