"""The sentence that a program of the training image leaves for /opt/ml/output/failure."""

import os
from pathlib import Path

from berth.runtime import whole_files

FAILURE_FILE_VARIABLE = "BERTH_FAILURE_FILE"


def write_failure(sentence: str) -> bool:
    """For a program under our entry: leave the sentence that is to stand first in /opt/ml/output/failure, then exit
    non-zero. The entry of each host says it in the log.

    Outside the training image (no BERTH_FAILURE_FILE) nothing is written; returns False.
    """
    path = os.environ.get(FAILURE_FILE_VARIABLE)
    if path:
        whole_files.write(Path(path), sentence)
    return bool(path)


SENTENCE_CHARACTERS = 900
"""The longest sentence of a report."""
