# A frozen backbone with BatchNorm stays in eval mode while the head trains.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
backbone.requires_grad_(False)
head = nn.Linear(64, 2)
model = nn.Sequential(backbone, head)
optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.01)
for epoch in range(2):
    model.train()
    backbone.eval()
    for _ in range(3):
        x, y = torch.randn(4, 1, 6, 6), torch.randint(0, 2, (4,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
