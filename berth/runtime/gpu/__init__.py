"""What both images know of the host's GPUs: whether torch can run on them.

driver         detects the driver's version and its GPUs, by libcuda in a child process
compatibility  what fits which driver and GPU, as one sentence; pure
start          puts the two before torch, and takes cuda-compat where it helps
bench          measures what the GPUs do
"""
