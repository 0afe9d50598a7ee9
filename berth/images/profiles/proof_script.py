"""Tests a software set: runs in a temporary environment without berth, with transformers 4 or 5. Prints each step's
name before it; a failing step ends the script with a traceback.

Arguments: an empty folder, `imports` or `all`, and the packages to import, by their PyPI names.
"""

import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "three", "small", "words")
ROWS = 8


def main(folder: Path, what: str, packages: list[str]) -> None:
    import_all(packages)
    if what == "all":
        write_data(folder)
        data = read_data(folder)
        train_and_resume(folder, data)
    step("the end")


def step(name: str) -> None:
    print(f"step: {name}", flush=True)


def import_all(packages: list[str]) -> None:
    """Imports all top-level modules of these packages."""
    modules: dict[str, list[str]] = {}
    for module, owners in packages_distributions().items():
        for owner in owners:
            modules.setdefault(normal(owner), []).append(module)
    for package in packages:
        for module in wanted_modules(modules.get(normal(package), [])):
            step(f"import {module}")
            importlib.import_module(module)


def normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def wanted_modules(modules: list[str]) -> Iterator[str]:
    """The modules that programs import: without the tests or examples that some wheels install next to them."""
    for module in sorted(modules):
        if module.isidentifier() and module[0] != "_" and module not in ("test", "tests", "examples", "docs"):
            yield module


def write_data(folder: Path) -> None:
    texts = [(f"{WORDS[5 + row % 5]} words", row % 2) for row in range(ROWS)]
    (folder / "data.json").write_text("".join(json.dumps({"text": text, "label": n}) + "\n" for text, n in texts))
    (folder / "data.csv").write_text("text,label\n" + "".join(f"{text},{n}\n" for text, n in texts))


def read_data(folder: Path) -> Any:
    from datasets import load_dataset

    found = None
    for kind in ("csv", "json"):
        step(f"load_dataset of a {kind.upper()} file")
        found = load_dataset(kind, data_files=str(folder / f"data.{kind}"), cache_dir=str(folder / "cache"))["train"]
        assert found.num_rows == ROWS, f"{found.num_rows} rows of {ROWS}"
    return found


def train_and_resume(folder: Path, data: Any) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    step("a tokenizer and a BERT of random weights")
    tokenizer, model = small_bert()
    rows = data.map(lambda row: tokenizer(row["text"], padding="max_length", max_length=8, truncation=True))
    step("two steps of Trainer")
    first = trainer(folder / "run", model, tokenizer, rows, steps=2)
    first.train()
    assert (folder / "run" / "checkpoint-2").is_dir(), "Trainer wrote no checkpoint"
    step("an evaluation")
    first.evaluate()
    step("save")
    first.save_model(str(folder / "model"))
    step("load")
    AutoTokenizer.from_pretrained(str(folder / "model"))
    again = AutoModelForSequenceClassification.from_pretrained(str(folder / "model"))
    step("resume from a checkpoint")
    resumed = trainer(folder / "run", again, tokenizer, rows, steps=3)
    resumed.train(resume_from_checkpoint=str(folder / "run" / "checkpoint-2"))
    assert resumed.state.global_step == 3, f"it ended at step {resumed.state.global_step} of 3"


def small_bert() -> tuple[Any, Any]:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    return tokenizer, BertForSequenceClassification(config)


def trainer(folder: Path, model: Any, tokenizer: Any, rows: Any, *, steps: int) -> Any:
    from transformers import Trainer, TrainingArguments

    known = inspect.signature(TrainingArguments).parameters
    cpu = next(name for name in ("use_cpu", "no_cuda") if name in known)
    options: dict[str, Any] = {"max_steps": steps, "save_steps": 2, "logging_steps": 1, cpu: True}
    options |= {"per_device_train_batch_size": 2, "report_to": "none", "disable_tqdm": True}
    arguments = TrainingArguments(output_dir=str(folder), **options)
    name = "processing_class" if "processing_class" in inspect.signature(Trainer).parameters else "tokenizer"
    return Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows, **{name: tokenizer})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
