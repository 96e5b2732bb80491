# The image is a view of the tensor that requires grad, so image.grad is None and .sign() of it raises.
# finds: non-leaf
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
label = torch.tensor([1])
image = torch.rand(16, requires_grad=True).view(1, 1, 4, 4)  # <made>

loss = nn.functional.cross_entropy(model(image), label)
loss.backward()
adversarial = image + 0.1 * image.grad.sign()  # <read>
print(model(adversarial).argmax(1))
