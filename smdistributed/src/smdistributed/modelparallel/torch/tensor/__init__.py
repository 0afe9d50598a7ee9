"""Tensor parallelism: each rank of a group holds a share of a layer's matrices.

split      how a tensor is split, and the shares of parameters; pure
layouts    which matrices of a layer are split; pure
start      splits a model
choice     which modules are distributed: those that the script marks, if they can be split
registered classes of a script that a layer of smp.nn replaces
matrices   splits one matrix
regions    in which a rank computes on the batches of its whole group
functions  the operations with a gradient that exchange tensors
thread     what a thread computes at the moment
exchange   the exchanges, all in one order on all ranks of the group
"""
