"""Find and load the model to fine-tune: from the channel `model`, a path, or the hub.

A folder may hold the model one level down, or packed as `model.tar.gz` (as an earlier job writes it, and as the SDK's
`model_uri` delivers it).
"""

import contextlib
import mmap
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.archive import ArchiveError, unpack
from berth.contract.errors import JobError
from berth.contract.model_files import NULL_THRESHOLD, WEIGHTS, file_faults, first_file, model_home
from berth.contract.served_model import has_other_head, unusable
from berth.qa.tokenizer import PairTokenizer
from berth.runtime.engines.model_check import fault_of, reason_of, takes_token_types, tokenizer_fault
from berth.train.run_qa.recipe import Paths, Recipe

# The two dropout rates under the names that the common architectures give them.
DROPOUTS = {
    "hidden_dropout_prob": ("hidden_dropout_prob", "dropout", "hidden_dropout"),
    "attention_probs_dropout_prob": ("attention_probs_dropout_prob", "attention_dropout"),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with its tokenizer. `fresh`: the parts of the model without stored weights, such as the answer head."""

    model: Any
    tokenizer: Any
    fresh: tuple[str, ...]


def find(recipe: Recipe, paths: Paths, channels: frozenset[str]) -> tuple[str | Path, str]:
    """Decide where the model comes from. Returns its path or its name on the hub, and a line for the log.

    An existing path takes precedence over the channel, the channel over a name.
    """
    name = recipe.model_name_or_path
    if name and Path(name).exists():
        return Path(name), f"model: {name}"
    if "model" in channels:
        instead = f" (not model_name_or_path {name})" if name else ""
        return paths.channels / "model", f"model: channel model{instead}"
    if not name:
        raise JobError("There is no model: pass model_name_or_path (a name of the hub or a path), or a channel model.")
    if name.startswith(("/", "./", "../")):
        raise JobError(
            f"model_name_or_path {name} does not exist: check the path, and the channel that should contain it."
        )
    return name, f"model: {name} of the hub"


@contextlib.contextmanager
def folder(path: Path, *, tokenizer: bool = True) -> Iterator[Path]:
    """The folder with config and weights in or below `path`. An archive is unpacked into a temporary folder; files that
    can't be memory-mapped are copied there. `tokenizer`: whether the folder must have one.
    """
    archive = path if path.is_file() else next(iter(sorted(path.glob("*.tar.gz"))), None)
    if model_home(path) is None and archive is not None:
        with tempfile.TemporaryDirectory(prefix="berth-model-") as unpacked:
            content = Path(unpacked) / "model"
            try:
                unpack(archive, content)
            except ArchiveError as reason:
                raise JobError(str(reason)) from None
            yield _checked(content, archive, tokenizer=tokenizer)
        return
    home = _checked(path, path, tokenizer=tokenizer)
    if _can_be_mapped(home):
        yield home
        return
    with tempfile.TemporaryDirectory(prefix="berth-model-") as copied:
        yield Path(shutil.copytree(home, Path(copied) / "model"))


def _can_be_mapped(home: Path) -> bool:
    """Whether the weights can be memory-mapped, as safetensors does; files of a FastFile channel may not allow it."""
    with (home / str(first_file(home, WEIGHTS))).open("rb") as file:
        try:
            mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ).close()
        except OSError:
            return False
    return True


def load(name: str | Path, recipe: Recipe) -> Loaded:
    """Load config, tokenizer and model. Raises JobError if a part is missing or the hub can't be reached."""
    source = (
        folder(name, tokenizer=not recipe.tokenizer_name) if isinstance(name, Path) else contextlib.nullcontext(name)
    )
    with source as place:
        return _load(str(place), str(name), recipe, local=isinstance(name, Path))


def _checked(path: Path, origin: Path, *, tokenizer: bool) -> Path:
    home = model_home(path)
    if (faults := file_faults(path, origin, tokenizer=tokenizer)) or home is None:
        raise JobError(f"{'; '.join(faults)}.")
    return home


def _load(place: str, name: str, recipe: Recipe, *, local: bool) -> Loaded:
    import torch
    from transformers import AutoConfig, AutoModelForQuestionAnswering, AutoTokenizer

    source: dict[str, Any] = {
        "cache_dir": recipe.cache_dir,
        "revision": recipe.model_revision or "main",
        "token": recipe.token,
        "trust_remote_code": recipe.trust_remote_code,
    }
    with _reading("config", name, local=local):
        config = AutoConfig.from_pretrained(recipe.config_name or place, **source)
    if fault := unusable(config.to_dict()):
        raise JobError(f"{name}: {fault}.")
    _set_dropout(config, recipe)
    if has_other_head(config.to_dict()):
        config.num_labels = 2  # the new head's; the config has the other head's number
    if recipe.version_2_with_negative:
        setattr(config, NULL_THRESHOLD, recipe.null_score_diff_threshold)  # read by the server
    with _reading("tokenizer", name, local=local):
        tokenizer = AutoTokenizer.from_pretrained(recipe.tokenizer_name or place, **source)
    if not tokenizer.is_fast:
        raise JobError(f"{name} has a slow tokenizer only, without offsets: use a model with a tokenizer.json.")
    with _reading("weights", name, local=local):
        # Always fp32: transformers 5 defaults to the checkpoint's type, and 16-bit weights round small updates away.
        model, info = AutoModelForQuestionAnswering.from_pretrained(
            place, config=config, dtype=torch.float32, output_loading_info=True, **source
        )
    if info["missing_keys"] >= {key for key, _ in model.named_parameters()}:
        raise JobError(f"None of the weights of {name} fit its config, {type(model).__name__}: save it again.")
    with _reading("tokenizer", name, local=local):
        pairs = PairTokenizer.of(tokenizer, token_types=takes_token_types(model))
    if fault := fault_of(model.eval(), pairs):
        raise JobError(f"{name} can't be used: {fault}.")
    fresh = sorted({key.split(".")[0] for key in info["missing_keys"]})
    return Loaded(model, tokenizer, tuple(fresh))


def check_head(loaded: Loaded, name: str | Path) -> None:
    """For a job that does not train. Raises JobError if the model has no question-answering head."""
    if loaded.fresh:
        raise JobError(
            f"{name} has no weights for {', '.join(loaded.fresh)}, and this job trains nothing: pass a model that was "
            "fine-tuned for question answering, or a channel train."
        )


@contextlib.contextmanager
def _reading(what: str, name: str, *, local: bool) -> Iterator[None]:
    """Turn any exception while one part of the model is loaded into a JobError."""
    try:
        yield
    except Exception as reason:  # a damaged file makes transformers raise many types, but the advice is the same
        advice = (
            "copy or save the model again, with its tokenizer"
            if local
            else "check the name, and if the job can't reach the hub, pass the model as channel model"
        )
        why = tokenizer_fault(reason) if what == "tokenizer" else reason_of(reason)
        raise JobError(f"The {what} of {name} can't be loaded ({why}): {advice}.") from reason


def _set_dropout(config: Any, recipe: Recipe) -> None:
    for name, candidates in DROPOUTS.items():
        value = getattr(recipe, name)
        if value is None:
            continue
        target = next((candidate for candidate in candidates if hasattr(config, candidate)), None)
        if target is None:
            raise JobError(
                f"{name} can't be set: a {config.model_type} model does not have this setting; leave it out."
            )
        setattr(config, target, value)


def check_numbers(trained: Any) -> None:
    """Raises JobError if a weight is NaN or infinite: such a model loads, but can't answer anything."""
    if not all(bool(weight.isfinite().all()) for weight in trained.state_dict().values()):
        raise JobError(
            "Training diverged: the model's weights are not numbers (NaN or infinite), so no model is written; train "
            "with a lower learning_rate, with warmup_ratio, or with bf16 instead of fp16."
        )
