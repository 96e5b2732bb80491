# One loss, two optimizers on two parts of the model, the second of which steps only every other time.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
encoder, decoder = nn.Linear(8, 4), nn.Linear(4, 8)
enc_opt = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9)
dec_opt = torch.optim.Adam(decoder.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(16, 8)
    loss = nn.functional.mse_loss(decoder(torch.tanh(encoder(x))), x)
    enc_opt.zero_grad()
    loss.backward()
    enc_opt.step()
    if step % 2:
        dec_opt.step()
        dec_opt.zero_grad()
