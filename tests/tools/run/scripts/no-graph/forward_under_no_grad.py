# The whole forward pass stands under torch.no_grad(), copied from the test loop: backward raises.
# finds: no-graph
import torch
from torch import nn


def train_one_epoch(model, loader, optimizer, loss_fn):
    model.train()
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.no_grad():  # <cut>
            outputs = model(inputs)
        loss = loss_fn(outputs, targets)
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    loader = [(torch.randn(4, 8), torch.randint(0, 2, (4,))) for _ in range(4)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_one_epoch(model, loader, optimizer, nn.CrossEntropyLoss())
