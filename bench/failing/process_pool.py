"""Prepares rows in a pool of processes."""

from concurrent.futures import ProcessPoolExecutor

from work import load

if __name__ == "__main__":
    with ProcessPoolExecutor(1) as pool:
        list(pool.map(load, [1, 7]))
