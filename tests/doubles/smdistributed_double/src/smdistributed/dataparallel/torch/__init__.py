"""The double's part for PyTorch."""
