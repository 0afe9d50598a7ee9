"""A double of matplotlib.pyplot."""
