"""A double of maskrcnn_benchmark: what AWS's example of Mask R-CNN imports, around a small network and random pictures.

The example's own text is what runs: it makes the process group, wraps the model in SMDDP's DistributedDataParallel and
seeds each rank with a number of its own, so that ranks agree only if the wrapper hands rank 0's weights on.
"""
