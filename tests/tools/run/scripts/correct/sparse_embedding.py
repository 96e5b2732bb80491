# A sparse embedding is trained by SparseAdam and the rest by Adam.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
emb = nn.Embedding(100, 8, sparse=True)
fc = nn.Linear(8, 1)
sparse_opt = torch.optim.SparseAdam(emb.parameters(), lr=0.01)
dense_opt = torch.optim.Adam(fc.parameters(), lr=0.01)
for _ in range(5):
    ids, y = torch.randint(0, 100, (16,)), torch.randn(16, 1)
    loss = nn.functional.mse_loss(fc(emb(ids)), y)
    sparse_opt.zero_grad()
    dense_opt.zero_grad()
    loss.backward()
    sparse_opt.step()
    dense_opt.step()
