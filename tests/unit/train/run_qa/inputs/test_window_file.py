"""Tests the order of windows, and windows in files: their content, their use of memory, and a full disk."""

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from berth.contract.errors import JobError
from berth.qa.squad import Answer, DataError, Example
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import WindowError, make_windows
from berth.train.run_qa.inputs.features import Collator, WindowDataset, grouped_order
from berth.train.run_qa.inputs.window_file import Cutting, WindowFile
from tests.unit.small_models import tiny_tokenizer


@pytest.fixture(scope="module")
def pairs() -> PairTokenizer:
    return PairTokenizer.of(tiny_tokenizer(), token_types=True)


def examples(count: int) -> Iterator[Example]:
    """Contexts of several lengths, some longer than a window, each with three questions."""
    for number in range(count):
        context = "in oslo " * (1 + number // 3 % 9)
        yield Example(f"q{number}", f"where is {number} ?", context, (Answer("oslo", context.rindex("oslo")),))


@pytest.mark.parametrize("token_types", [True, False])
def test_window_file_equals_windows_in_memory(pairs: PairTokenizer, tmp_path: Path, token_types: bool) -> None:
    tokenizer = PairTokenizer(pairs.library, token_types)
    in_memory = make_windows(tokenizer, list(examples(600)), 40, 8, label=True)
    file = WindowFile(Cutting(tokenizer.sharing(), 40, 8), tmp_path)
    file.fill(examples(600))
    file.finish()
    assert len(file) == len(in_memory) > 600
    assert list(tmp_path.iterdir()) == [], "the files have no name"
    assert file.size == sum(len(window.input_ids) for window in in_memory) * (3 if token_types else 2)
    ours, theirs = WindowDataset(file), WindowDataset(in_memory)
    assert (ours.lengths == theirs.lengths).all()
    for index in [*range(len(in_memory)), -1]:
        one, other = ours[index], theirs[index]
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)
    batch = Collator(0)([ours[index] for index in range(5)])
    assert batch["input_ids"].tolist() == Collator(0)([theirs[index] for index in range(5)])["input_ids"].tolist()


def test_large_token_ids_are_stored(pairs: PairTokenizer, tmp_path: Path) -> None:
    class Large:
        """A library with a large token id."""

        def __init__(self, library: Any) -> None:
            self.encode_batch = library.encode_batch

        def get_vocab(self) -> dict[str, int]:
            return {"oslo": 250_001}

    file = WindowFile(Cutting(PairTokenizer(Large(pairs.library), token_types=True), 40, 8), tmp_path)  # type: ignore[arg-type]
    file.fill(examples(3))
    file.finish()
    assert file[0].input_ids.dtype == np.uint32
    assert file[0].input_ids.tolist() == make_windows(pairs, list(examples(1)), 40, 8)[0].input_ids.tolist()


def test_window_file_without_questions(pairs: PairTokenizer, tmp_path: Path) -> None:
    file = WindowFile(Cutting(pairs, 40, 8), tmp_path)
    file.fill(iter(()))
    file.finish()
    assert (len(file), file.size) == (0, 0)
    assert WindowDataset(file).lengths.tolist() == []


def test_window_error_is_raised_after_faults_of_the_data(pairs: PairTokenizer, tmp_path: Path) -> None:
    def with_a_fault() -> Iterator[Example]:
        yield from examples(30)
        raise DataError("row 31")

    file = WindowFile(Cutting(pairs, 20, 15), tmp_path)
    with pytest.raises(DataError, match="row 31"):
        file.fill(with_a_fault())
    file = WindowFile(Cutting(pairs, 20, 15), tmp_path)
    file.fill(examples(30))
    with pytest.raises(WindowError, match="is too long"):
        file.finish()


def test_full_disk_is_reported(pairs: PairTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(dir: Path, buffering: int) -> IO[bytes]:
        return Path("/dev/full").open("wb", buffering)

    monkeypatch.setattr(tempfile, "TemporaryFile", full_disk)
    file = WindowFile(Cutting(pairs, 40, 8), tmp_path)
    with pytest.raises(JobError, match=r"fill the disk of .* \(No space left on device\): give the job a larger"):
        file.fill(examples(100))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_windows(pairs: PairTokenizer, tmp_path: Path) -> None:
    """A window in memory would need some kilobytes; in a file it needs less than 50 bytes of memory."""
    peak_bytes = {}
    for count in (500, 2500):
        file = WindowFile(Cutting(pairs, 40, 8), tmp_path)
        tracemalloc.start()
        file.fill(examples(count))
        peak_bytes[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        windows = len(file)
    assert (peak_bytes[2500] - peak_bytes[500]) / windows < 50


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("group", [1, 8])
def test_grouped_order_contains_every_window_once(size: int, group: int) -> None:
    lengths = np.random.default_rng(0).integers(20, 385, size)
    order = grouped_order(lengths, group, seed=3, epoch=0)
    assert sorted(order) == list(range(size))
    assert np.array_equal(order, grouped_order(lengths, group, seed=3, epoch=0))
    if size > 8:
        assert not np.array_equal(order, grouped_order(lengths, group, seed=3, epoch=1))


def test_grouped_order_reduces_padding() -> None:
    lengths = np.random.default_rng(0).integers(20, 385, 4000)

    def padded(order: np.ndarray) -> float:
        return sum(16 * lengths[order[first : first + 16]].max() for first in range(0, 4000, 16)) / lengths.sum()

    assert padded(grouped_order(lengths, 16, 0, 0)) < 1.05 < 1.5 < padded(np.arange(4000))
