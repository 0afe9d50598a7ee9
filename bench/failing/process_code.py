"""Starts a multiprocessing process and exits with its exit code."""

import multiprocessing
import sys

from work import load

if __name__ == "__main__":
    process = multiprocessing.Process(target=load, args=(7,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
