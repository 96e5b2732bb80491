"""A language model fine-tuned with LoRA by stock onnxruntime: where this runs, no PyTorch is installed.

python prepare.py out         once, where the model is made
python train.py out           where it is used
"""

import sys
from pathlib import Path

import numpy as np

from stopgrad_trainer import Trainer

LETTERS = "abcdefghijklmnopqrstuvwxyz ."
LENGTH = 32
SECOND = "a fox ran to the river. a hen ran to the barn. the fox saw a hen. "


def batch(rng, text, count=16):
    """Pieces of a text that goes on for ever: letters, and the letter after each."""
    numbers = np.array([LETTERS.index(letter) for letter in text])
    starts = rng.integers(len(numbers), size=(count, 1))
    pieces = numbers[(starts + np.arange(LENGTH + 1)) % len(numbers)]
    return pieces[:, :-1], pieces[:, 1:]


def written(trainer, beginning, count=40):
    """The beginning, and the letters that the model finds the likeliest after it."""
    text = beginning
    for _ in range(count):
        seen = text[-LENGTH:]
        tokens = np.array([[LETTERS.index(letter) for letter in seen.ljust(LENGTH)]])
        logits = trainer.predict(tokens=tokens)["logits"]
        text += LETTERS[int(logits[0, len(seen) - 1].argmax())]
    return text


def train(trainer, steps=200, learning_rate=1e-2, seed=0):
    """The losses of the steps."""
    rng, losses = np.random.default_rng(seed), []
    for _ in range(steps):
        tokens, labels = batch(rng, SECOND)
        losses.append(float(trainer.step(tokens=tokens, labels=labels, learning_rate=learning_rate)))
    return losses


def main(folder):
    trainer = Trainer(folder / "training", threads=1)
    print(f"before: {written(trainer, 'a ')}")
    losses = train(trainer)
    print(f"loss: {losses[0]:.3f} at first, {np.mean(losses[-20:]):.3f} at last")
    print(f"after:  {written(trainer, 'a ')}")
    trainer.export(folder / "adapted.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
