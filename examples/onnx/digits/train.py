"""The head of an image model trained by stock onnxruntime: NumPy, onnxruntime and safetensors, no framework.

python prepare.py out         once, where the model is made
python train.py out           where it is used
"""

import sys
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from stopgrad_trainer import Trainer


def accuracy(trainer, images, labels):
    return float((trainer.predict(image=images)["logits"].argmax(axis=1) == labels).mean())


def train(folder, steps=300, batch=64, seed=0):
    """The trainer, the losses, and the accuracy on held-out digits before and after."""
    digits = load_file(folder / "digits.safetensors")
    images, labels = digits["train/images"], digits["train/labels"]
    held_out = digits["held_out/images"], digits["held_out/labels"]
    trainer = Trainer(folder / "training")
    before = accuracy(trainer, *held_out)
    rng, losses = np.random.default_rng(seed), []
    for _ in range(steps):
        some = rng.integers(len(labels), size=batch)
        losses.append(float(trainer.step(image=images[some], labels=labels[some])))
    return trainer, losses, before, accuracy(trainer, *held_out)


def main(folder):
    start = time.perf_counter()
    trainer, losses, before, after = train(folder)
    print(f"accuracy on held-out digits: {before:.1%} before, {after:.1%} after {len(losses)} steps")
    print(f"loss: {losses[0]:.3f} at first, {np.mean(losses[-20:]):.3f} at last")
    print(f"{time.perf_counter() - start:.1f} s from the first line of main")
    trainer.export(folder / "trained.onnx")
    print(f"the trained model: {folder / 'trained.onnx'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
