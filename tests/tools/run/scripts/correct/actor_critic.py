# An actor and a critic share a body; the advantage is a number of Python's.
# finds: nothing
import torch
from torch import nn
import torch.nn.functional as F
from torch.distributions import Categorical

torch.manual_seed(1)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 32)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)
        self.saved_actions, self.rewards = [], []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


model = Policy()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
for i in range(4):
    state = torch.randn(4)
    for t in range(5):
        probs, value = model(state)
        m = Categorical(probs)
        a = m.sample()
        model.saved_actions.append((m.log_prob(a), value))
        model.rewards.append(a.item())
        state = torch.randn(4)
    R, pl, vl, returns = 0, [], [], []
    for r in model.rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    for (lp, v), R in zip(model.saved_actions, returns):
        adv = R - v.item()
        pl.append(-lp * adv)
        vl.append(F.smooth_l1_loss(v, torch.tensor([float(R)])))
    optimizer.zero_grad()
    loss = torch.stack(pl).sum() + torch.stack(vl).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
