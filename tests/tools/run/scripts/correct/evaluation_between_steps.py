# Each epoch is followed by an evaluation in eval mode under no_grad; the best value is kept.
# finds: nothing
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, best = torch.randn(48, 4), float("inf")
    y = x[:, :1] * x[:, 1:2]
    for _ in range(4):
        model.train()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x[:32]), y[:32]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            val = nn.functional.mse_loss(model(x[32:]), y[32:]).item()
        best = min(best, val)

main()
