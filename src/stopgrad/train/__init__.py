"""Optimisers, batches of examples, adapters, checkpoints; nothing that only one framework has."""

from typing import TYPE_CHECKING

from stopgrad.base.hints import HINTS

if not TYPE_CHECKING:

    def __getattr__(name):  # What TensorFlow has in ``tf.train`` stands elsewhere here.
        raise AttributeError(f"module 'stopgrad.train' has no {name!r}; {HINTS['train']}")
