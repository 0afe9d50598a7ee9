"""Spawns workers without `if __name__ == "__main__"`."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def square(number: int) -> int:
    return number * number


with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
    print(list(pool.map(square, range(4))))
