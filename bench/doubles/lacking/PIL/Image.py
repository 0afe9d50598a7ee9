"""A double of PIL.Image."""
