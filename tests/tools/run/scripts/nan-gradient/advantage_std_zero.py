# The returns of episode one are equal, so the advantages are 0/0: nan gradients, then Categorical raises.
# finds: nan-gradient
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
episodes = [torch.ones(10), torch.arange(10.0), torch.randn(10), torch.arange(10.0)]
for returns in episodes:
    dist = torch.distributions.Categorical(logits=policy(torch.randn(10, 4)))
    advantages = (returns - returns.mean()) / returns.std()
    loss = -(dist.log_prob(dist.sample()) * advantages).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
