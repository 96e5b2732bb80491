# SAC: three optimizers, one of them for the temperature alone; targets follow softly.
# finds: nothing
import torch, copy
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 16), nn.ReLU(), nn.Linear(16, o))


actor, q1, q2 = mlp(3, 2), mlp(4, 1), mlp(4, 1)
q1_t, q2_t = copy.deepcopy(q1), copy.deepcopy(q2)
log_alpha = torch.zeros(1, requires_grad=True)
q_opt = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=1e-3)
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
a_opt = torch.optim.Adam([log_alpha], lr=1e-3)


def act(s):
    mu, ls = actor(s).chunk(2, -1)
    std = ls.clamp(-5, 2).exp()
    n = torch.distributions.Normal(mu, std)
    x = n.rsample()
    a = torch.tanh(x)
    return a, (n.log_prob(x) - torch.log(1 - a.pow(2) + 1e-6)).sum(1, keepdim=True)


for step in range(5):
    s, s2, r, a = torch.randn(16, 3), torch.randn(16, 3), torch.randn(16, 1), torch.rand(16, 1)
    with torch.no_grad():
        a2, lp2 = act(s2)
        sa = torch.cat([s2, a2], 1)
        y = r + 0.99 * (torch.min(q1_t(sa), q2_t(sa)) - log_alpha.exp() * lp2)
    sa = torch.cat([s, a], 1)
    q_loss = F.mse_loss(q1(sa), y) + F.mse_loss(q2(sa), y)
    q_opt.zero_grad()
    q_loss.backward()
    q_opt.step()
    pi, lp = act(s)
    sp = torch.cat([s, pi], 1)
    actor_loss = (log_alpha.exp().detach() * lp - torch.min(q1(sp), q2(sp))).mean()
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()
    alpha_loss = (-log_alpha.exp() * (lp + 1).detach()).mean()
    a_opt.zero_grad()
    alpha_loss.backward()
    a_opt.step()
    for t, o in ((q1_t, q1), (q2_t, q2)):
        for tp, p in zip(t.parameters(), o.parameters()):
            tp.data.mul_(0.995).add_(p.data, alpha=0.005)
