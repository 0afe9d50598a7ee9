"""What both images know of the host's GPUs: the driver that drives them, and a check of what they do."""
