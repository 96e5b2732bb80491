# forward passes the output of the encoder on with its graph.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)

class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 3), nn.Tanh())
        self.decoder = nn.Linear(3, 8)

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(z)
model = AutoEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(32, 8)
for epoch in range(5):
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
