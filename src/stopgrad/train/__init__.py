"""Optimisers, batches of examples, adapters, checkpoints, monitors; nothing that only one framework has."""

from typing import TYPE_CHECKING

from stopgrad.base.hints import HINTS

if not TYPE_CHECKING:

    def __getattr__(name):  # The contents of TensorFlow's ``tf.train`` are elsewhere here.
        raise AttributeError(f"module 'stopgrad.train' has no {name!r}; {HINTS['train']}")
