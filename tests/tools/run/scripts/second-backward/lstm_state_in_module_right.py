# The module keeps (h, c) without their graph.
# finds: nothing
import torch
from torch import nn

class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lstm, self.out = nn.Embedding(12, 6), nn.LSTM(6, 10), nn.Linear(10, 12)
        self.state = None
    def forward(self, ids):
        y, self.state = self.lstm(self.emb(ids), self.state)
        self.state = tuple(s.detach() for s in self.state)
        return self.out(y)
def main():
    torch.manual_seed(0)
    model = CharModel()
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    for text in torch.randint(0, 12, (4, 8, 3)):
        loss = nn.functional.cross_entropy(model(text[:-1]).flatten(0, 1), text[1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
main()
