# PPO: several epochs over one rollout, clipped ratios, a loose log_std parameter.
# finds: nothing
import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
critic = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
log_std = nn.Parameter(torch.zeros(1))
params = [*actor.parameters(), *critic.parameters(), log_std]
opt = torch.optim.Adam(params, lr=3e-4, eps=1e-5)
for update in range(2):
    obs = torch.randn(32, 3)
    with torch.no_grad():
        dist = Normal(actor(obs), log_std.exp())
        act = dist.sample()
        old = dist.log_prob(act).sum(1)
        values = critic(obs).squeeze(1)
    ret = torch.randn(32)
    adv = ret - values
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for epoch in range(3):
        for idx in torch.randperm(32).split(16):
            d = Normal(actor(obs[idx]), log_std.exp())
            ratio = (d.log_prob(act[idx]).sum(1) - old[idx]).exp()
            pg = torch.max(-adv[idx] * ratio, -adv[idx] * ratio.clamp(0.8, 1.2)).mean()
            v = critic(obs[idx]).squeeze(1)
            vc = values[idx] + (v - values[idx]).clamp(-0.2, 0.2)
            vl = 0.5 * torch.max((v - ret[idx]) ** 2, (vc - ret[idx]) ** 2).mean()
            loss = pg + 0.5 * vl - 0.01 * d.entropy().sum(1).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, 0.5)
            opt.step()
