# requires_grad is set on the image itself.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
label = torch.tensor([1])
image = torch.rand(16).view(1, 1, 4, 4).requires_grad_()

loss = nn.functional.cross_entropy(model(image), label)
loss.backward()
adversarial = image + 0.1 * image.grad.sign()
print(model(adversarial).argmax(1))
