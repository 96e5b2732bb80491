# A slice of the LSTM's bias is filled in place to initialise it: RuntimeError about a view of a leaf.
# finds: leaf-written
import torch
from torch import nn

torch.manual_seed(0)
lstm = nn.LSTM(3, 5)
head = nn.Linear(5, 1)
forget = lstm.bias_hh_l0[5:10]
forget.fill_(1.0)  # <written>
optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()], lr=1e-2)
for _ in range(4):
    seq = torch.randn(6, 2, 3)
    out, _ = lstm(seq)
    loss = (head(out[-1]) - seq.sum((0, 2)).unsqueeze(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
