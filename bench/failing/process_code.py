"""Starts a process of multiprocessing and passes its exit code on."""

import multiprocessing
import sys

from work import load

if __name__ == "__main__":
    process = multiprocessing.Process(target=load, args=(7,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
