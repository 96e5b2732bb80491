# Pretrained word vectors are frozen and all the parameters are given to the optimizer.
# finds: nothing
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.emb = nn.Embedding.from_pretrained(vectors, freeze=True, padding_idx=0)
        self.fc = nn.Linear(vectors.shape[1], 2)

    def forward(self, ids):
        return self.fc(self.emb(ids).mean(1))

torch.manual_seed(0)
net = Classifier(torch.randn(20, 6))
opt = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-4)
for _ in range(4):
    loss = nn.functional.cross_entropy(net(torch.randint(0, 20, (8, 5))), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
