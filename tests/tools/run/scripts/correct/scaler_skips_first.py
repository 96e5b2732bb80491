# A GradScaler begins too high and skips the first steps.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
m = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(m.parameters(), 0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**112)
for _ in range(12):
    x = torch.randn(8, 6) * 100
    opt.zero_grad()
    scaler.scale(nn.functional.mse_loss(m(x), x[:, :1])).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
