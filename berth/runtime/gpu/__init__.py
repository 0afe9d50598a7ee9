"""Checks whether torch can run on the host's GPUs; for both images.

driver         detects the driver's version and GPUs with libcuda, in a child process
compatibility  compares torch with driver and GPUs; explains an incompatibility in one sentence; pure
start          runs both before torch is imported, and enables cuda-compat if it helps
bench          measures the GPUs' performance
"""
