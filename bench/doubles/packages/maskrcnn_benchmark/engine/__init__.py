"""The loop of training, and what the example calls after it."""
