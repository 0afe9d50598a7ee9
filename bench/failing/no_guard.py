"""Spawns its workers without asking whether it is the main module."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def square(number: int) -> int:
    return number * number


with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
    print(list(pool.map(square, range(4))))
