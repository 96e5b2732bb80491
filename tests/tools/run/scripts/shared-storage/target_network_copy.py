# copy.copy shares the weights, so the target network of the DQN moves with the online one.
# finds: shared-storage
import copy

import torch
from torch import nn

class DQN:
    def __init__(self):
        self.online = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.target = copy.copy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)
    def learn(self, s, a, r, s2):
        goal = r + 0.9 * self.target(s2).max(1).values.detach()
        loss = nn.functional.mse_loss(self.online(s).gather(1, a).squeeze(1), goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
torch.manual_seed(0)
agent = DQN()
for step in range(1, 7):
    agent.learn(torch.randn(8, 4), torch.randint(0, 2, (8, 1)), torch.randn(8), torch.randn(8, 4))
    if step % 3 == 0:
        agent.target.load_state_dict(agent.online.state_dict())
