"""Prepares rows with joblib, one of whose processes crashes in native code."""

import ctypes

from joblib import Parallel, delayed


def tokenize(row: int) -> int:
    return len(ctypes.string_at(8)) if row == 5 else row


def prepare() -> list[int]:
    return Parallel(n_jobs=2)(delayed(tokenize)(row) for row in range(8))


prepare()
