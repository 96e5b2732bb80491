# The prediction is squeezed to [16] while the target is [16, 1]: MSELoss warns and broadcasts to [16, 16].
# finds: broadcast-loss
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    loader = DataLoader(TensorDataset(x, x[:, :1] * x[:, 1:2]), batch_size=16)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    criterion, optimizer = nn.MSELoss(), torch.optim.SGD(net.parameters(), lr=0.05)
    for xb, yb in loader:
        out = net(xb).squeeze()
        loss = criterion(out, yb)  # <computed>
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
