# A GAN whose discriminator sees detached samples, and whose generator goes through the stepped one.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
netG = nn.Sequential(nn.Linear(4, 16), nn.ReLU(True), nn.Linear(16, 2))
netD = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1))
optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)
for _ in range(5):
    netD.zero_grad()
    criterion(netD(torch.randn(8, 2) + 2), ones).backward()
    fake = netG(torch.randn(8, 4))
    criterion(netD(fake.detach()), zeros).backward()
    optD.step()

    netG.zero_grad()
    criterion(netD(fake), ones).backward()
    optG.step()
