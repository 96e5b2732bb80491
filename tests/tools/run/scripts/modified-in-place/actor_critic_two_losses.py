# The actor's optimizer moves the shared trunk before the critic's loss goes backward: it raises.
# finds: modified-in-place
import torch
from torch import nn

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
actor, critic = nn.Linear(16, 2), nn.Linear(16, 1)
actor_opt = torch.optim.Adam([*trunk.parameters(), *actor.parameters()], lr=1e-3)
critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-3)
for episode in range(4):
    obs, returns = torch.randn(10, 4), torch.randn(10)
    h = trunk(obs)  # <needed>
    dist = torch.distributions.Categorical(logits=actor(h))
    value = critic(h).squeeze(-1)
    advantage = returns - value.detach()
    actor_loss = -(dist.log_prob(dist.sample()) * advantage).mean()
    critic_loss = (returns - value).pow(2).mean()
    actor_opt.zero_grad()
    actor_loss.backward(retain_graph=True)
    actor_opt.step()  # <written>
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()
