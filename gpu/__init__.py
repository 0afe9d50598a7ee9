"""What both images know of the host's GPUs: whether torch can run on them, and what they do.

driver       asks libcuda, in a child process, for its version and the GPUs
child        a child process whose time limit holds even where a hung driver keeps it from dying
verdict      what fits which driver and GPU, as one sentence; pure
start        puts the two before torch, and takes cuda-compat where it helps
check        measures the GPUs: collectives, compute (matrix product, training step, torch.compile), answering
peaks        what chips and links can do at most; pure
"""
