# The learnable temperature enters the logits as a tensor.
# finds: nothing
import torch
import torch.nn.functional as F
from torch import nn


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(8, 4), nn.Linear(6, 4)
        self.log_scale = nn.Parameter(torch.tensor(2.0))
    def forward(self, img, txt):
        a, b = F.normalize(self.image(img), dim=1), F.normalize(self.text(txt), dim=1)
        scale = self.log_scale.exp()
        return scale * a @ b.t()
torch.manual_seed(0)
model = Clip()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(4):
    logits = model(torch.randn(5, 8), torch.randn(5, 6))
    optimizer.zero_grad()
    F.cross_entropy(logits, torch.arange(5)).backward()
    optimizer.step()
