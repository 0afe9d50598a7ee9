"""Starts its ranks with torch.multiprocessing."""

import torch.multiprocessing

from work import load


def train(rank: int) -> None:
    load(6 + rank)


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=1)
