"""The PyTorch engine: the model as transformers loads it, in float32, on the GPU if there is one, else the CPU."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from berth.qa.windows import Window, position_count
from berth.runtime.cpus import model_threads
from berth.serve.engines.batches import by_length, pad
from berth.serve.engines.engine import Logits, never
from berth.serve.models import ModelFiles, ModelFilesError

log = logging.getLogger(__name__)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars and load report off the log; what matters of them is checked and said here.

    TRANSFORMERS_VERBOSITY, if the user set it, wins. Python warnings pass.
    """
    if "TRANSFORMERS_VERBOSITY" in os.environ:
        yield
        return
    logging_of = transformers.utils.logging
    before = logging_of.get_verbosity()
    logging_of.set_verbosity_error()
    logging_of.disable_progress_bar()
    try:
        yield
    finally:
        logging_of.set_verbosity(before)


def _sentence(error: Exception) -> str:
    """The first line of an error, short enough for a sentence."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def load_tokenizer(files: ModelFiles) -> Any:
    """The model's fast tokenizer; ModelFilesError if it can't be read or has no offsets."""
    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(files.folder, local_files_only=True)
    except Exception as error:  # whatever a damaged file makes transformers raise, the user's way out is the same
        raise ModelFilesError(
            f"the tokenizer in {files.folder} can't be loaded ({_sentence(error)}): save it again"
        ) from error
    if not tokenizer.is_fast:
        raise ModelFilesError(
            f"the tokenizer in {files.folder} has no fast version, whose offsets are needed: add a tokenizer.json"
        )
    return tokenizer


class PyTorchEngine:
    """See engine.Engine. Windows run in small batches of like length (batches.by_length)."""

    def __init__(self, files: ModelFiles) -> None:
        """Load the weights of `files`; ModelFilesError if they don't fit or hold no question-answering head."""
        torch.set_num_threads(model_threads())
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = _load(files.folder).to(self.device)
        self.pad_id = self.model.config.pad_token_id or 0

    @property
    def description(self) -> str:
        """Such as `PyTorch 2.13.0, BertForQuestionAnswering, float32 on cpu`."""
        return f"PyTorch {torch.__version__}, {type(self.model).__name__}, float32 on {self.device}"

    @property
    def max_length(self) -> int:
        """The model's positions, 512 where it names none."""
        return position_count(self.model) or 512

    def logits(self, windows: Sequence[Window], cancelled: Callable[[], bool] = never) -> tuple[Logits, Logits]:
        """See engine.Engine.logits."""
        lengths = [len(window.input_ids) for window in windows]
        start: Logits = [None] * len(windows)  # type: ignore[list-item]
        end: Logits = [None] * len(windows)  # type: ignore[list-item]
        for batch in by_length(lengths):
            if cancelled():
                raise CancelledError
            output = self._forward([windows[index] for index in batch])
            for row, index in enumerate(batch):
                start[index] = output.start_logits[row, : lengths[index]].float().cpu().numpy()
                end[index] = output.end_logits[row, : lengths[index]].float().cpu().numpy()
        return start, end

    @torch.inference_mode()
    def _forward(self, windows: Sequence[Window]) -> Any:
        inputs = {
            "input_ids": pad([window.input_ids for window in windows], self.pad_id),
            "attention_mask": pad([[1] * len(window.input_ids) for window in windows], 0),
        }
        token_types = [window.token_type_ids for window in windows if window.token_type_ids is not None]
        if len(token_types) == len(windows):
            inputs["token_type_ids"] = pad(token_types, 0)
        return self.model(**{name: torch.from_numpy(array).to(self.device) for name, array in inputs.items()})


def _load(folder: Path) -> Any:
    try:
        with _quiet():
            model, report = AutoModelForQuestionAnswering.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
            )
    except Exception as error:
        raise ModelFilesError(f"the model in {folder} can't be loaded ({_sentence(error)}): save it again") from error
    missing = sorted(report["missing_keys"])
    if missing:  # transformers fills them with random numbers and goes on; such answers would only look like answers
        raise ModelFilesError(
            f"the weights in {folder} lack {', '.join(missing[:3])}{' and others' if missing[3:] else ''}: "
            "fine-tune the model for question answering first"
        )
    return model.eval()
