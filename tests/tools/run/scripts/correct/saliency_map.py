# A saliency map: gradients of a frozen-in-use classifier for its input, no optimizer at all.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 5)).eval()
image = torch.rand(1, 1, 6, 6, requires_grad=True)
scores = model(image)
scores[0, scores.argmax()].backward()
saliency = image.grad.abs().amax(dim=1)
print(saliency.shape, saliency.max().item())
