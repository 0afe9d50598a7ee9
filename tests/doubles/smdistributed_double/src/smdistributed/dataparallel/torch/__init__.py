"""What the double has for PyTorch."""
