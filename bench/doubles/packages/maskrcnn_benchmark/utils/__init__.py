"""What the example calls around its training."""
