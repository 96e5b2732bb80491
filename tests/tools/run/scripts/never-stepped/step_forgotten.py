# optimizer.step() is missing from the loop, so the loss stays where it is.
# finds: never-stepped
import torch
from torch import nn


def train(model, x, y, epochs=5):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # <made>
    loss_fn = nn.BCEWithLogitsLoss()
    for epoch in range(epochs):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        print(f"epoch {epoch}, loss {loss.item():.4f}")

if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(50, 4)
    train(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), x, (x[:, :1] > 0).float())
