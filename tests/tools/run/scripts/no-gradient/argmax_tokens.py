# The generator's tokens are chosen by argmax before the embedding, so no gradient reaches the generator.
# finds: no-gradient
import torch
from torch import nn

torch.manual_seed(0)

class TextGame(nn.Module):
    def __init__(self, vocab=10, dim=6):
        super().__init__()
        self.generator = nn.Linear(4, vocab)
        self.emb, self.scorer = nn.Embedding(vocab, dim), nn.Linear(dim, 1)

    def forward(self, noise):
        tokens = self.generator(noise).argmax(dim=-1)  # <cut>
        return self.scorer(self.emb(tokens))

game = TextGame()
optimizer = torch.optim.Adam(game.parameters(), lr=1e-3)
for i in range(5):
    loss = -game(torch.randn(16, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
