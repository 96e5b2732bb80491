# The embedding is frozen after the first step; its zero gradients remain and AdamW's weight decay shrinks it.
# finds: moves-frozen
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.fc = nn.Embedding(12, 6), nn.Linear(6, 3)

    def forward(self, ids):
        return self.fc(self.emb(ids).mean(1))

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
for step in range(6):
    optimizer.zero_grad(set_to_none=False)
    loss = nn.functional.cross_entropy(model(torch.randint(0, 12, (8, 4))), torch.randint(0, 3, (8,)))
    loss.backward()
    optimizer.step()  # <step>
    if step == 0:
        model.emb.weight.requires_grad = False
