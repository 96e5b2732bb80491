# Federated averaging: clients are copies that live for a round.
# finds: nothing
import torch, copy
from torch import nn

torch.manual_seed(0)
g = nn.Linear(4, 1)
for r in range(2):
    sds = []
    for c in range(3):
        l = copy.deepcopy(g)
        o = torch.optim.SGD(l.parameters(), 0.1)
        for _ in range(2):
            o.zero_grad()
            l(torch.randn(8, 4)).pow(2).mean().backward()
            o.step()
        sds.append(l.state_dict())
    g.load_state_dict({k: torch.stack([s[k] for s in sds]).mean(0) for k in sds[0]})
