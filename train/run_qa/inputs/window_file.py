"""The windows that a job trains on, in files of the scratch folder: as many as its disk holds, whatever the memory.

A window in memory is an object with arrays, some kilobytes for two hundred tokens. Training needs its token ids, its
token types and two labels; ids and types go into a file each as they are made, and are mapped when all are there.
"""

import errno
import mmap
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from berth.contract.errors import JobError
from berth.qa.squad import Example
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import Window, WindowError, cut_windows


class ScratchError(JobError):
    """The scratch folder can't take the windows; the message is one sentence for the user."""


class Cutting(NamedTuple):
    """How questions become windows; `length` and `stride` in tokens, as of berth.qa.windows."""

    tokenizer: PairTokenizer
    length: int
    stride: int


class StoredWindow(NamedTuple):
    """What training needs of a window; see berth.qa.windows.Window."""

    input_ids: npt.NDArray[Any]
    token_type_ids: npt.NDArray[np.uint8] | None
    start: int
    end: int


class WindowFile(Sequence[StoredWindow]):
    """Windows with labels, made of questions by `fill`, and to be read after `finish`.

    The files have no name: they go with the process, however it ends.
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
        """Make the windows of these questions. All are gone through even where one can't be cut, which `finish` says:
        faults of the data come before those of the settings.
        """
        source = iter(examples)
        tokenizer, length, stride = self._cutting
        with _scratch(self.folder):
            for _ in range(2):
                self._files.append(tempfile.TemporaryFile(dir=self.folder, buffering=1 << 20))  # noqa: SIM115
            try:
                for window in cut_windows(tokenizer, source, length, stride, label=True):
                    self._add(window)
            except WindowError as error:
                self._fault = error
            for file in self._files:
                file.flush()
        for _ in source:
            pass

    def finish(self) -> None:
        """Raises WindowError where a question could not be cut. The windows can be read from here on."""
        if self._fault:
            raise self._fault
        self.lengths = np.array(self._lengths, np.int64)
        self._ends = np.cumsum(self.lengths)
        self._ids = _mapped(self._files[0], self._id_type)
        self._types = _mapped(self._files[1], np.uint8)

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(file.tell() for file in self._files)

    def __len__(self) -> int:
        return len(self._lengths)

    @overload
    def __getitem__(self, index: int) -> StoredWindow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredWindow]: ...

    def __getitem__(self, index: int | slice) -> StoredWindow | Sequence[StoredWindow]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
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


@contextmanager
def _scratch(folder: Path) -> Iterator[None]:
    """Raises ScratchError where the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ScratchError(
            f"The windows to train on fill the disk of {folder} ({error.strerror}): give the job a larger volume, set "
            "TMPDIR to a folder with more room, or train on fewer questions (max_train_samples)."
        ) from error
