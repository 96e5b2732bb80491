# update() clears the gradients after the step.
# finds: nothing
import torch
from torch import nn


class Agent:
    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.1)

    def update(self, loss):
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        self.policy.zero_grad()

def main():
    torch.manual_seed(0)
    agent = Agent()
    for _ in range(5):
        dist = torch.distributions.Categorical(logits=agent.policy(torch.randn(10, 4)))
        agent.update(-(dist.log_prob(dist.sample()) * torch.randn(10)).mean())
main()
