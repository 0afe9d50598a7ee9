"""Writes the error of a program in the training image for /opt/ml/output/failure."""

import os
from pathlib import Path

from berth.runtime import whole_files

FAILURE_FILE_VARIABLE = "BERTH_FAILURE_FILE"


def write_failure(sentence: str) -> bool:
    """Set the first sentence of /opt/ml/output/failure, which each host's entry also logs. The program must then exit
    with another code than 0.

    Outside the training image (BERTH_FAILURE_FILE is not set) it does nothing and returns False.
    """
    path = os.environ.get(FAILURE_FILE_VARIABLE)
    if path:
        whole_files.write(Path(path), sentence)
    return bool(path)


SENTENCE_CHARACTERS = 900
"""The most characters of a sentence in a report."""
