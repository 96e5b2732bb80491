# After the freezing only the head's gradients are cleared: the body's last one is applied again.
# finds: moves-frozen
import torch
from torch import nn

torch.manual_seed(0)
model = nn.ModuleDict({"body": nn.Linear(5, 10), "head": nn.Linear(10, 2)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train_step(part):
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    part.zero_grad()
    logits = model["head"](torch.relu(model["body"](x)))
    nn.functional.cross_entropy(logits, y).backward()
    optimizer.step()  # <step>

for _ in range(3):
    train_step(model)
for p in model["body"].parameters():
    p.requires_grad = False
for _ in range(3):
    train_step(model["head"])
