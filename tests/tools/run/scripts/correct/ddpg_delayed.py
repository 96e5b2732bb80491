# DDPG with a delayed actor; targets are loaded from averaged state dicts.
# finds: nothing
import torch, copy
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1), nn.Tanh())
critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
at, ct = copy.deepcopy(actor), copy.deepcopy(critic)
ao, co = (
    torch.optim.Adam(actor.parameters(), 1e-4),
    torch.optim.Adam(critic.parameters(), 1e-3, weight_decay=1e-2),
)
for step in range(6):
    s, a, s2, r = torch.randn(8, 3), torch.rand(8, 1), torch.randn(8, 3), torch.randn(8, 1)
    target = r + 0.9 * ct(torch.cat([s2, at(s2)], 1)).detach()
    loss = F.mse_loss(critic(torch.cat([s, a], 1)), target)
    co.zero_grad()
    loss.backward()
    co.step()
    if step % 2:
        al = -critic(torch.cat([s, actor(s)], 1)).mean()
        ao.zero_grad()
        al.backward()
        ao.step()
        at.load_state_dict({k: 0.9 * v + 0.1 * actor.state_dict()[k] for k, v in at.state_dict().items()})
        ct.load_state_dict({k: 0.9 * v + 0.1 * critic.state_dict()[k] for k, v in ct.state_dict().items()})
