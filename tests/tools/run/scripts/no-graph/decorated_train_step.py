# The training step carries @torch.inference_mode(), left from the predict function: backward raises.
# finds: no-graph
import torch
from torch import nn

torch.manual_seed(0)

class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @torch.inference_mode()  # <cut>
    def step(self, x, y):
        loss = ((self.model(x) - y) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

trainer = Trainer(nn.Linear(4, 1))
for _ in range(4):
    print(trainer.step(torch.randn(8, 4), torch.randn(8, 1)))
