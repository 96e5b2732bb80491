# The output layer of a language model is tied to its embedding.
# finds: nothing
import torch
from torch import nn


class TiedLM(nn.Module):
    def __init__(self, vocab=15, dim=8):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)
        self.out.weight = self.emb.weight
    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])
torch.manual_seed(0)
lm = TiedLM()
optimizer = torch.optim.Adam(lm.parameters(), lr=1e-2)
for _ in range(4):
    ids = torch.randint(0, 15, (3, 7))
    loss = nn.functional.cross_entropy(lm(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
