# The hidden state of the GRU is carried over batches with its graph: the second backward raises.
# finds: second-backward
import torch
from torch import nn

torch.manual_seed(0)
gru = nn.GRU(3, 8, batch_first=True)
head = nn.Linear(8, 1)
optimizer = torch.optim.Adam([*gru.parameters(), *head.parameters()], lr=1e-3)
criterion = nn.MSELoss()
data = torch.randn(5, 4, 6, 3)  # batches, batch, time, features

hidden = torch.zeros(1, 4, 8)
for batch in data:
    optimizer.zero_grad()
    output, hidden = gru(batch, hidden)  # <computed>
    loss = criterion(head(output[:, -1]), batch.mean((1, 2)).unsqueeze(1))
    loss.backward()  # <second>
    optimizer.step()
    print(loss.item())
