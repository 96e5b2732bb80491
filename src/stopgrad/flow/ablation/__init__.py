"""Ablation: what stops change, and what they save."""
