"""Reads invalid memory, as a faulty extension does."""

import ctypes


def step() -> None:
    ctypes.string_at(8)


print("epoch 1", flush=True)
step()
