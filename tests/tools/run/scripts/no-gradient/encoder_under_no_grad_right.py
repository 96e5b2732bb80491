# The encoder runs with gradients.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.GRU(5, 8, batch_first=True)
classifier = nn.Linear(8, 3)
optimizer = torch.optim.Adam([
    {"params": encoder.parameters(), "lr": 1e-4},
    {"params": classifier.parameters(), "lr": 1e-3},
])
for batch in range(5):
    seq, label = torch.randn(6, 7, 5), torch.randint(0, 3, (6,))
    _, h = encoder(seq)
    loss = nn.functional.cross_entropy(classifier(h[-1]), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
