"""The windows that a job trains on, in files of the temporary folder, so their number is not limited by memory.

A window in memory is an object with arrays: some kilobytes for two hundred tokens. Training needs only its token ids,
its token types and two labels. Ids and types are each written to a file and memory-mapped when all are written; the
labels stay in memory.
"""

import errno
import mmap
import tempfile
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from berth.contract.errors import JobError
from berth.qa.squad import Example
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import Window, WindowError, cut_windows


class Cutting(NamedTuple):
    """How questions are cut into windows; `length` and `stride` in tokens, as in berth.qa.windows."""

    tokenizer: PairTokenizer
    length: int
    stride: int


class StoredWindow(NamedTuple):
    """The parts of a window that training needs; see berth.qa.windows.Window."""

    input_ids: npt.NDArray[Any]
    token_type_ids: npt.NDArray[np.uint8] | None
    start: int
    end: int


class WindowFile:
    """Windows with labels: `fill` makes them from questions; after `finish` they can be read.

    The files have no name, so they disappear with the process, however it ends.
    """

    def __init__(self, cutting: Cutting, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self._cutting = cutting
        largest = max(cutting.tokenizer.library.get_vocab().values(), default=0)
        self._id_type: type[Any] = np.uint16 if largest < 1 << 16 else np.uint32
        self._files: list[IO[bytes]] = []
        self._lengths = array("i")
        self._labels = array("i")
        self._fault: WindowError | None = None
        self.lengths: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._ends = self.lengths
        self._ids: npt.NDArray[Any] = np.zeros(0, self._id_type)
        self._types: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    def fill(self, examples: Iterable[Example]) -> None:
        """Make the windows of these questions. If one can't be cut, the rest is still read, and `finish` raises the
        error: faults of the data are reported before those of the settings. Raises JobError if the disk is full.
        """
        source = iter(examples)
        tokenizer, length, stride = self._cutting
        try:
            for _ in range(2):
                self._files.append(tempfile.TemporaryFile(dir=self.folder, buffering=1 << 20))  # noqa: SIM115
            try:
                for window in cut_windows(tokenizer, source, length, stride, label=True):
                    self._add(window)
            except WindowError as error:
                self._fault = error
            for file in self._files:
                file.flush()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise JobError(
                f"The windows to train on fill the disk of {self.folder} ({error.strerror}): give the job a larger "
                "volume, set TMPDIR to a folder with more room, or train on fewer questions (max_train_samples)."
            ) from error
        for _ in source:
            pass

    def finish(self) -> None:
        """Make the windows readable. Raises WindowError if a question could not be cut."""
        if self._fault:
            raise self._fault
        self.lengths = np.array(self._lengths, np.int64)
        self._ends = np.cumsum(self.lengths)
        self._ids = _mapped(self._files[0], self._id_type)
        self._types = _mapped(self._files[1], np.uint8)

    @property
    def size(self) -> int:
        """The size of its files in bytes."""
        return sum(file.tell() for file in self._files)

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> StoredWindow:
        end = int(self._ends[index])
        tokens = slice(end - int(self.lengths[index]), end)
        types = self._types[tokens] if self._cutting.tokenizer.token_types else None
        return StoredWindow(self._ids[tokens], types, self._labels[2 * index], self._labels[2 * index + 1])

    def _add(self, window: Window) -> None:
        ids, types = self._files
        ids.write(window.input_ids.astype(self._id_type).tobytes())
        if window.token_type_ids is not None:
            types.write(window.token_type_ids.astype(np.uint8).tobytes())
        self._lengths.append(len(window.input_ids))
        self._labels.extend((window.start or 0, window.end or 0))


def _mapped(file: IO[bytes], kind: type[Any]) -> npt.NDArray[Any]:
    if not file.tell():
        return np.zeros(0, kind)
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), kind)
