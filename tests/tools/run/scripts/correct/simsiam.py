# SimSiam: a bias that is frozen because a normalisation follows.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)


class SimSiam(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(6, 16, bias=False),
            nn.BatchNorm1d(16),
            nn.ReLU(inplace=True),
            nn.Linear(16, 8),
            nn.BatchNorm1d(8, affine=False),
        )
        self.encoder[3].bias.requires_grad = False
        self.predictor = nn.Sequential(
            nn.Linear(8, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 8)
        )

    def forward(self, a, b):
        z1, z2 = self.encoder(a), self.encoder(b)
        return self.predictor(z1), self.predictor(z2), z1.detach(), z2.detach()


model = SimSiam()
criterion = nn.CosineSimilarity(dim=1)
opt = torch.optim.SGD(
    [
        {"params": model.encoder.parameters(), "fix_lr": False},
        {"params": model.predictor.parameters(), "fix_lr": True},
    ],
    0.05,
    momentum=0.9,
    weight_decay=1e-4,
)
for _ in range(5):
    x = torch.randn(16, 6)
    p1, p2, z1, z2 = model(x + 0.1, x - 0.1)
    loss = -(criterion(p1, z2).mean() + criterion(p2, z1).mean()) * 0.5
    opt.zero_grad()
    loss.backward()
    opt.step()
