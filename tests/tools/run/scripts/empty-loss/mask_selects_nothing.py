# The mask compares with -1 while the labels are padded with -100 and 0/1, so no element enters the loss.
# finds: empty-loss
import torch
from torch import nn

PAD = -1

class MaskedLoss(nn.Module):
    def forward(self, logits, labels):
        mask = labels == PAD
        losses = nn.functional.binary_cross_entropy_with_logits(
            logits, labels.clamp(min=0).float(), reduction="none")
        return losses[mask].sum() / mask.sum().clamp(min=1)  # <computed>

torch.manual_seed(0)
model, criterion = nn.Linear(6, 5), MaskedLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(5):
    labels = torch.randint(0, 2, (8, 5))
    labels[torch.rand(8, 5) < 0.2] = -100
    loss = criterion(model(torch.randn(8, 6)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
