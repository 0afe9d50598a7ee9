"""Hints for scripts whose arguments the installed transformers does not have: replacements, and a suitable image."""

import ast
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest
from packaging.version import Version

from berth.runtime.hints import removed_apis
from berth.runtime.hints.images import ThisImage
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.removed_apis import ARGUMENTS, NAMES, TRAINER
from tests.files import write_files

VERSIONS = {"transformers": "5.23.0", "accelerate": "1.15.0", "datasets": "5.2.0", "evaluate": "0.4.6"}
NEWEST = ThisImage("cpu", "", VERSIONS)
OLD = ThisImage("cpu-hf4", "", {"transformers": "4.26.0", "accelerate": "0.16.0", "datasets": "2.9.0"})
KEYWORD = "{}.__init__() got an unexpected keyword argument '{}'"
UNUSED = "Some specified arguments are not used by the HfArgumentParser: "
ADD = "`python build.py profile add mine --from cpu --transformers {}` makes an image for it"
SCRIPT_OF_2024 = """
from transformers import Trainer, TrainingArguments
arguments = TrainingArguments("/opt/ml/model", eval_strategy="epoch", logging_dir="/opt/ml/output/tensorboard")
Trainer(model, arguments, processing_class=tokenizer)
"""
SCRIPT_OF_2023 = """
import transformers
from transformers import AdamW, Trainer, TrainingArguments
arguments = TrainingArguments(
    "out", evaluation_strategy="epoch", no_cuda=True, overwrite_output_dir=True, fp16_backend="auto",
    per_gpu_train_batch_size=4, per_gpu_eval_batch_size=4, push_to_hub_token="x", logging_dir="logs",
    group_by_length=True, warmup_ratio=0.1, save_safetensors=False,
)
transformers.Trainer(model, arguments, tokenizer=tokenizer)
"""


def hint(message: str, code: str = "", this_image: ThisImage = NEWEST, *, folder: Path) -> str:
    write_files(folder, {"train.py": code})
    return removed_apis.message_hint(message, folder, this_image)


def test_script_of_2024_gets_one_image_for_all_its_names(tmp_path: Path) -> None:
    """Neither the newest nor the oldest profile has all names of the script."""
    sentence = hint(KEYWORD.format(ARGUMENTS, "logging_dir"), SCRIPT_OF_2024, folder=tmp_path)
    assert sentence.startswith("; transformers 5.23 has no `logging_dir`: ")
    assert sentence.endswith(f"TENSORBOARD_LOGGING_DIR, or {ADD.format('4.57.6')}")
    sentence = hint(KEYWORD.format(ARGUMENTS, "eval_strategy"), SCRIPT_OF_2024, OLD, folder=tmp_path)
    assert sentence.startswith(
        "; transformers 4.26 lacks 2 names of this script: rename eval_strategy to evaluation_strategy"
    )
    assert "rename processing_class to tokenizer" in sentence
    assert sentence.endswith(ADD.format("4.57.6"))


def test_all_removed_names_of_script_are_listed(tmp_path: Path) -> None:
    sentence = hint(KEYWORD.format(ARGUMENTS, "evaluation_strategy"), SCRIPT_OF_2023, folder=tmp_path)
    assert sentence.startswith(
        "; transformers 5.23 lacks 13 names of this script: rename evaluation_strategy to eval_strategy"
    )
    for words in ("rename no_cuda to use_cpu", "leave out overwrite_output_dir", "for AdamW use torch.optim.AdamW"):
        assert words in sentence
    assert sentence.endswith(ADD.format("4.49.0"))
    assert len(sentence) < 760


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (KEYWORD.format("Seq2SeqTrainingArguments", "overwrite_output_dir"), "`overwrite_output_dir`: leave out"),
        (KEYWORD.format("Seq2SeqTrainer", "tokenizer"), "rename tokenizer to processing_class"),
        ("cannot import name 'AdamW' from 'transformers' (/x.py)", "use torch.optim.AdamW"),
        ("cannot import name 'load_metric' from 'datasets' (/x.py)", "use evaluate.load"),
        (
            f"{UNUSED}['--evaluation_strategy', 'epoch', '--no-cuda', '--overwrite_output_dir=True', '--lerning', '1']",
            "rename evaluation_strategy to eval_strategy; rename no_cuda to use_cpu; leave out overwrite_output_dir",
        ),
        (
            "cannot import name 'RealmRetriever' from 'transformers' (/x.py)",
            "for scripts of transformers 4 " + ADD.format("4.57.6"),
        ),
    ],
)
def test_hint_per_kind_of_message(tmp_path: Path, message: str, words: str) -> None:
    assert words in hint(message, folder=tmp_path)


@pytest.mark.parametrize(
    ("code", "this_image", "name", "image"),
    [
        ("TrainingArguments(eval_strategy='no')", OLD, "eval_strategy", "profile cpu has transformers 5.23"),
        (
            "TrainingArguments(eval_strategy='no', no_cuda=True)",
            OLD,
            "eval_strategy",
            "--from cpu --transformers 4.57.6`",
        ),
        ("TrainingArguments(sharded_ddp=True)", NEWEST, "sharded_ddp", "profile cpu-hf4 has transformers 4.26"),
        (
            "TrainingArguments(sharded_ddp=True, eval_strategy='no')",
            NEWEST,
            "sharded_ddp",
            "use fsdp",
        ),
        (
            "",
            ThisImage("cu130", "13.0", VERSIONS),
            "evaluation_strategy",
            "--from cu130 --transformers 4.49.0`",
        ),
    ],
)
def test_recommended_image_has_all_names_of_script(
    tmp_path: Path, code: str, this_image: ThisImage, name: str, image: str
) -> None:
    assert image in hint(KEYWORD.format(ARGUMENTS, name), code, this_image, folder=tmp_path)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (KEYWORD.format(ARGUMENTS, "eval_strategy"), ""),  # this transformers has it
        (KEYWORD.format(ARGUMENTS, "evaluation_stratgy"), ""),
        (KEYWORD.format("Model", "evaluation_strategy"), ""),
        (KEYWORD.format("Trainer", "tokenizer"), "class Trainer:\n    def __init__(self, model): ...\n"),
        ("No module named 'nothing'", ""),
        (f"{UNUSED}['--lerning_rate', '3e-5']", ""),
        ("no rows", ""),
    ],
)
def test_other_errors_have_no_hint(tmp_path: Path, message: str, code: str) -> None:
    assert hint(message, code, folder=tmp_path) == ""


@pytest.mark.parametrize(("last_file", "expected"), [("/c/loop.py", True), ("/x/site-packages/peft/model.py", False)])
def test_only_calls_in_own_code_have_hint(last_file: str, expected: bool) -> None:
    raised = RaisedException("TypeError", KEYWORD.format(ARGUMENTS, "evaluation_strategy"), ["/c/train.py", last_file])
    assert bool(removed_apis.hint(raised, ProgramContext(Path("/c")))) == expected


def installed_keywords(file: str, owner: str) -> set[str]:
    """The keywords of a class of the installed transformers, read from its source."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    tree = ast.parse(Path(str(spec.origin)).with_name(file).read_text())
    node = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == owner)
    init = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    fields = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return fields | ({each.arg for each in (*init.args.args, *init.args.kwonlyargs)} if init else set())


@pytest.mark.parametrize(("file", "owner"), [("training_args.py", ARGUMENTS), ("trainer.py", TRAINER)])
def test_table_agrees_with_installed_transformers(file: str, owner: str) -> None:
    keywords, version = installed_keywords(file, owner), Version(importlib.metadata.version("transformers"))
    for name, row in NAMES[owner].items():
        assert row.is_in(version) == (name in keywords), name
        new = row.advice.rpartition(" to ")[2]
        assert not row.advice.startswith("rename") or name in keywords or new in keywords, row.advice
