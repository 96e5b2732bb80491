"""Programs of PyTorch as graphs of ours, through ``torch.export``."""
