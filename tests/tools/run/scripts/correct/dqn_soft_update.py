# DQN with a deep-copied target network that follows the online one by soft updates.
# finds: nothing
import copy

import torch
from torch import nn

torch.manual_seed(0)
q = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
q_target = copy.deepcopy(q)
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
gamma, tau = 0.99, 0.05
for step in range(5):
    s, s2, r = torch.randn(16, 4), torch.randn(16, 4), torch.randn(16)
    a, done = torch.randint(0, 2, (16, 1)), torch.zeros(16)
    with torch.no_grad():
        target = r + gamma * (1 - done) * q_target(s2).max(1).values
    loss = nn.functional.smooth_l1_loss(q(s).gather(1, a).squeeze(1), target)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(q.parameters(), 100)
    optimizer.step()
    for p, tp in zip(q.parameters(), q_target.parameters()):
        tp.data.copy_(tau * p.data + (1 - tau) * tp.data)
