"""The PyTorch engine: runs the model with transformers, on the GPU if there is one, else on the CPU.

A CPU computes in float32. A GPU computes in bf16 (an older one in fp16), which is two to four times as fast, unless
BERTH_PRECISION names another precision. The log line about the engine has the precision.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForQuestionAnswering, AutoTokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES

from berth.contract.gpu_hosts import supports_bf16
from berth.contract.other_models import HANDLER
from berth.contract.served_model import read_config
from berth.contract.words import few
from berth.qa.tokenizer import PairTokenizer, SlowTokenizerError
from berth.qa.windows import position_count
from berth.runtime.engines.batches import model_inputs
from berth.runtime.engines.engine import EngineInfo, RowLogits, WindowTokens
from berth.runtime.engines.model_check import fault_of, reason_of, takes_token_types, tokenizer_fault
from berth.runtime.engines.model_folder import ModelFiles, ModelFilesError

ROWS = {"cpu": 4, "cuda": 64}
SLOTS = {"cpu": 1, "cuda": 2}
"""On a GPU one batch is copied while the other is computed."""
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
POSITIONS = 512
"""The longest window of a model whose config has no limit."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide transformers' progress bars and load report, because this module checks the load itself.

    If the user set TRANSFORMERS_VERBOSITY, nothing is hidden. Python warnings are not hidden.
    """
    if "TRANSFORMERS_VERBOSITY" in os.environ:
        yield
        return
    transformers_logging = transformers.utils.logging
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def load(files: ModelFiles) -> tuple[Any, PairTokenizer]:
    """The model, in float32 on the CPU, and its tokenizer, checked together; ModelFilesError if they can't answer."""
    model = _load_model(files.folder)
    tokenizer = _load_tokenizer(files.folder, token_types=takes_token_types(model))
    if fault := fault_of(model, tokenizer):
        raise ModelFilesError(f"the model in {files.folder} can't answer questions: {fault}")
    return model, tokenizer


def _load_tokenizer(folder: Path, *, token_types: bool) -> PairTokenizer:
    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            return PairTokenizer.of(tokenizer, token_types=token_types)
    except SlowTokenizerError as error:
        raise ModelFilesError(
            f"the tokenizer in {folder} has no fast version, whose offsets are needed: add a tokenizer.json"
        ) from error
    except Exception as error:  # a damaged file can make transformers raise anything
        raise ModelFilesError(
            f"the tokenizer in {folder} can't be loaded ({tokenizer_fault(error)}): save it again"
        ) from error


def _load_model(folder: Path) -> Any:
    """ModelFilesError if the weights don't match the config or have no question-answering head."""
    if fault := _unknown_type(read_config(folder)[0]):
        raise ModelFilesError(f"{folder}: {fault}: {HANDLER}")
    try:
        with _quiet():
            model, report = AutoModelForQuestionAnswering.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
            )
    except Exception as error:
        raise ModelFilesError(f"the model in {folder} can't be loaded ({reason_of(error)}): save it again") from error
    # transformers fills missing weights with random numbers and goes on; the answers would be random, too
    if fault := _missing_weights(model, sorted(report["missing_keys"]), sorted(report["unexpected_keys"])):
        raise ModelFilesError(f"the weights in {folder} {fault}")
    return model.eval()


def _unknown_type(config: Mapping[str, Any]) -> str:
    """Why transformers can't load the model's type for question answering; empty if it can."""
    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING:
        code = ", and the code that its config names (auto_map) is not run" if "auto_map" in config else ""
        return f"transformers {transformers.__version__} does not know models of type {kind}{code}"
    if kind not in MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES:
        return f"transformers has no question answering for models of type {kind}"
    return ""


def _missing_weights(model: Any, missing: list[str], unexpected: list[str]) -> str:
    """What is missing in the weights of a question-answering model, and what to do; empty if nothing is."""
    if not missing:
        return ""
    if len(missing) >= len(list(model.parameters())):
        return f"don't fit its config, which is of a {type(model).__name__}: save the model again"
    if any(key.startswith(f"{model.base_model_prefix}.") for key in missing):
        return f"lack {few(missing)}: save the model again"
    other = f", but one of another kind ({few(unexpected)})" if unexpected else ""
    return f"have no head for question answering ({few(missing)}){other}: {HANDLER}, or fine-tune it with run_qa"


def longest_window(model: Any) -> int:
    """The model's positions in tokens; POSITIONS if its config has no limit."""
    return position_count(model) or POSITIONS


class PyTorchEngine:
    """See engine.Engine. One batch at a time, with all threads."""

    def __init__(self, files: ModelFiles, threads: int, precision: str = "") -> None:
        """Load `files`; ModelFilesError as in `load`. `precision`: fp32, bf16 or fp16; empty: the device's default."""
        torch.set_num_threads(threads)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        on_gpu = self.device.type == "cuda"
        half = "bf16" if on_gpu and supports_bf16(torch.cuda.get_device_capability()) else "fp16"
        precision = precision or (half if on_gpu else "fp32")
        model, self.tokenizer = load(files)
        self.model = model.to(self.device, _DTYPES[precision])
        self.pad_id = self.model.config.pad_token_id or 0
        self.info = EngineInfo(
            description=f"PyTorch {torch.__version__}, {type(self.model).__name__}, {precision} on {self.device}",
            precision=precision,
            max_length=longest_window(self.model),
            slots=SLOTS[self.device.type],
            rows=ROWS[self.device.type],
        )

    @torch.inference_mode()
    def logits(self, rows: Sequence[WindowTokens], *, alone: bool = False) -> list[RowLogits]:
        """See engine.Engine.logits."""
        inputs = {
            name: torch.from_numpy(array).to(self.device) for name, array in model_inputs(rows, self.pad_id).items()
        }
        output = self.model(**inputs)
        start = output.start_logits.float().cpu().numpy()
        end = output.end_logits.float().cpu().numpy()
        sizes = [len(row.input_ids) for row in rows]
        return [RowLogits(start[index, :size], end[index, :size]) for index, size in enumerate(sizes)]
