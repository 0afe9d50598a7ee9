"""A script that dies of an API which another software set has: the sentence names the profile and what to write."""

import importlib.metadata
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import software_apis
from berth.images import pins
from berth.runtime.hints import removed_apis
from berth.runtime.hints.removed_apis import Installed, OwnCode
from tests.unit.train.failures.printed import ending_sentence

NEWEST = Installed(
    {"transformers": "5.23.0", "accelerate": "1.15.0", "datasets": "5.2.0", "evaluate": "0.4.6"}, "cpu", cuda=False
)
OLD = Installed(
    {"transformers": "4.26.0", "accelerate": "0.16.0", "datasets": "2.9.0", "evaluate": "0.4.0"}, "cpu-hf4", cuda=False
)
NOTHING = OwnCode(parses_arguments=True)
KEYWORD = "{}.__init__() got an unexpected keyword argument '{}'"
UNUSED = "Some specified arguments are not used by the HfArgumentParser: "
SITE = "/opt/venv/lib/python3.11/site-packages"
LATER = re.compile(r"`([A-Za-z]\w*)(?:=[^`]*)?`")
"""Names that a hint gives, without those of another package, which have a dot."""
HF4 = "run this script in the profile cpu-hf4"


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (
            KEYWORD.format("TrainingArguments", "evaluation_strategy"),
            f"; transformers 5 has no `evaluation_strategy`; {HF4}, or rename it to `eval_strategy`",
        ),
        (
            KEYWORD.format("Seq2SeqTrainingArguments", "overwrite_output_dir"),
            f"; transformers 5 has no `overwrite_output_dir`; {HF4}, or leave it out",
        ),
        (
            KEYWORD.format("TrainingArguments", "group_by_length"),
            f'; transformers 5 has no `group_by_length`; {HF4}, or use `train_sampling_strategy="group_by_length"`',
        ),
        (
            KEYWORD.format("TrainingArguments", "mp_parameters"),
            f"; transformers 5 has no `mp_parameters`; {HF4}, or leave it out and set BERTH_SMDISTRIBUTED to open, "
            "which has Trainer split the model by the job's own",
        ),
        (
            KEYWORD.format("Seq2SeqTrainer", "tokenizer"),
            f"; transformers 5 has no `tokenizer`; {HF4}, or rename it to `processing_class`",
        ),
        (
            KEYWORD.format("Accelerator", "logging_dir"),
            f"; accelerate 1 has no `logging_dir`; {HF4}, or rename it to `project_dir`",
        ),
        (
            "load_from_disk() got an unexpected keyword argument 'fs'",
            f"; datasets 5 has no `fs`; {HF4}",
        ),
        (
            f"cannot import name 'AdamW' from 'transformers' ({SITE}/transformers/__init__.py)",
            f"; transformers 5 has no `AdamW`; {HF4}, or use `torch.optim.AdamW`",
        ),
        (
            f"cannot import name 'ShardedDDPOption' from 'transformers.trainer_utils' ({SITE}/transformers/x.py)",
            f"; transformers 5 has no `ShardedDDPOption`; {HF4}",
        ),
        (
            f"cannot import name 'ViTFeatureExtractor' from 'transformers' ({SITE}/transformers/__init__.py)",
            f"; transformers 5 has no `ViTFeatureExtractor`; {HF4}, or use `ViTImageProcessor`",
        ),
        (
            f"cannot import name 'RealmRetriever' from 'transformers' ({SITE}/transformers/__init__.py)",
            f"; transformers 5 has no `RealmRetriever`; {HF4}",
        ),
        (
            "No module named 'transformers.data.metrics'",
            f"; transformers 5.23 has no `transformers.data.metrics`; {HF4}",
        ),
        (
            "module 'datasets' has no attribute 'load_metric'",
            f"; datasets 5 has no `load_metric`; {HF4}, or use `evaluate.load`",
        ),
        (
            "module transformers has no attribute AdamW",
            f"; transformers 5 has no `AdamW`; {HF4}, or use `torch.optim.AdamW`",
        ),
        (
            "'Trainer' object has no attribute 'tokenizer'",
            f"; transformers 5 has no `tokenizer`; {HF4}, or rename it to `processing_class`",
        ),
        (
            "'BertTokenizer' object has no attribute 'encode_plus'",
            f"; transformers 5 has no `encode_plus`; {HF4}, or call the tokenizer itself",
        ),
        (
            f"{UNUSED}['--evaluation_strategy', 'epoch', '--lerning_rate', '3e-5']",
            f"; transformers 5 has no `evaluation_strategy`; {HF4}, or rename it to `eval_strategy`",
        ),
        (
            f"{UNUSED}['--evaluation_strategy', 'epoch', '--no-cuda', '--overwrite_output_dir=True', '--ray_scope']",
            "; transformers 5 has no `evaluation_strategy`, `no_cuda`, `overwrite_output_dir`, `ray_scope`; "
            f"{HF4}, or rename `evaluation_strategy` to `eval_strategy`, rename `no_cuda` to `use_cpu`, leave "
            "`overwrite_output_dir` out, leave `ray_scope` out",
        ),
        (
            "train.py: error: unrecognized arguments: --evaluation_strategy epoch",
            f"; transformers 5 has no `evaluation_strategy`; {HF4}, or rename it to `eval_strategy`",
        ),
    ],
)
def test_what_transformers_5_lacks_is_in_hf4(message: str, hint: str) -> None:
    assert removed_apis.hint(message, NOTHING, NEWEST) == hint


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (
            KEYWORD.format("TrainingArguments", "eval_strategy"),
            "; transformers 4.26 has no `eval_strategy`; run this script in the profile cpu, or rename it to "
            "`evaluation_strategy`",
        ),
        (
            KEYWORD.format("Trainer", "processing_class"),
            "; transformers 4.26 has no `processing_class`; run this script in the profile cpu, or rename it to "
            "`tokenizer`",
        ),
        (
            f"{UNUSED}['--use_cpu', 'True']",
            "; transformers 4.26 has no `use_cpu`; run this script in the profile cpu, or rename it to `no_cuda`",
        ),
        (
            f"cannot import name 'LlamaForCausalLM' from 'transformers' ({SITE}/transformers/__init__.py)",
            "; transformers 4.26 has no `LlamaForCausalLM`; run this script in the profile cpu",
        ),
        (
            "No module named 'transformers.models.llama'",
            "; transformers 4.26 has no `transformers.models.llama`; run this script in the profile cpu",
        ),
    ],
)
def test_what_transformers_4_lacks_is_in_the_current_set(message: str, hint: str) -> None:
    assert removed_apis.hint(message, NOTHING, OLD) == hint


@pytest.mark.parametrize(
    ("here", "name", "told"),
    [
        (replace(NEWEST, profile="cu130", cuda=True), "evaluation_strategy", "5 | cu124-hf4"),
        (replace(OLD, profile="cu124-hf4", cuda=True), "eval_strategy", "4.26 | cu124"),
        (replace(NEWEST, versions={"transformers": "5.15.0"}, profile="cu124", cuda=True), "no_cuda", "5 | cu124-hf4"),
        (replace(NEWEST, versions={"transformers": "5.15.0"}), "activation_checkpointing", "5.15 | cpu"),
        (
            replace(NEWEST, versions={"transformers": "4.46.3"}, profile="ours"),
            "use_legacy_prediction_loop",
            "4.46 | cpu-hf4",
        ),
        (replace(NEWEST, versions={"transformers": "6.0"}, profile=""), "eval_strategy", "6.0 | cpu"),
    ],
)
def test_the_profile_is_for_the_same_hardware(here: Installed, name: str, told: str) -> None:
    version, profile = told.split(" | ")
    hint = removed_apis.hint(KEYWORD.format("TrainingArguments", name), NOTHING, here)
    assert hint.partition(", or ")[0] == (
        f"; transformers {version} has no `{name}`; run this script in the profile {profile}"
    )


@pytest.mark.parametrize(
    "message",
    [
        KEYWORD.format("TrainingArguments", "eval_strategy"),  # it has it
        KEYWORD.format("TrainingArguments", "evaluation_stratgy"),
        KEYWORD.format("Model", "evaluation_strategy"),
        KEYWORD.format("main.<locals>.Trainer", "tokenizer"),
        f"cannot import name 'AdamV' from 'transformers' ({SITE}/transformers/__init__.py)",
        "No module named 'transformers.nothing'",
        "No module named 'nothing'",
        f"{UNUSED}['--lerning_rate', '3e-5']",
        "train.py: error: unrecognized arguments: --epoch 3",
        "no rows",
    ],
)
def test_nothing_is_said_of_what_is_no_removed_api(message: str) -> None:
    assert removed_apis.hint(message, NOTHING, NEWEST) == ""


def test_nothing_is_said_of_a_package_that_is_not_there() -> None:
    assert (
        removed_apis.hint("module 'evaluate' has no attribute 'AudioClassificationEvaluator'", NOTHING, Installed({}))
        == ""
    )


OWN = {
    "model.py": "class Trainer:\n    def __init__(self, model): ...\n",
    "arguments.py": "import transformers\nclass Mine(transformers.TrainingArguments): ...\nclass More(Mine): ...\n",
    "loop.py": "class Loop(Mixin, Trainer):\n    def __init__(self, model): ...\n",
    "data.py": "def load_from_disk(path): ...\n",
    "wrong.py": "class :\n",
}


@pytest.mark.parametrize(
    ("files", "message", "found"),
    [
        (["model.py"], KEYWORD.format("Trainer", "tokenizer"), ""),
        (["arguments.py"], KEYWORD.format("Mine", "evaluation_strategy"), "evaluation_strategy"),
        (["arguments.py"], KEYWORD.format("More", "evaluation_strategy"), "evaluation_strategy"),
        (["loop.py"], KEYWORD.format("Loop", "tokenizer"), ""),
        (["loop.py", "wrong.py"], "'Loop' object has no attribute 'tokenizer'", "tokenizer"),
        (["data.py"], "load_from_disk() got an unexpected keyword argument 'fs'", ""),
        (["datasets.py"], "cannot import name 'load_metric' from 'datasets' (/opt/ml/code/datasets.py)", ""),
        (["datasets.py"], "module 'datasets' has no attribute 'load_metric'", ""),
        (["data.py"], "train.py: error: unrecognized arguments: --evaluation_strategy epoch", ""),
    ],
)
def test_a_users_own_classes_and_modules_are_told_apart(
    tmp_path: Path, files: list[str], message: str, found: str
) -> None:
    for name in files:
        (tmp_path / name).write_text(OWN.get(name, ""))
    hint = removed_apis.hint(message, removed_apis.read_own_code(tmp_path), NEWEST)
    assert f"has no `{found}`" in hint if found else hint == ""


RAISED = """\
Traceback (most recent call last):
  File "{code}/train.py", line 7, in <module>
    import x
  File "{last}", line 3, in x
    y
ImportError: cannot import name 'AdamW' from 'transformers' (/x/site-packages/transformers/__init__.py)
"""


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("{code}/loop.py", True),
        ("/x/site-packages/transformers/utils/import_utils.py", True),
        ("/x/site-packages/peft/model.py", False),
    ],
)
def test_only_what_the_users_own_code_calls_counts(
    tmp_path: Path, last: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed_apis, "installed", lambda: NEWEST)
    text = RAISED.format(code=tmp_path, last=last.format(code=tmp_path))
    sentence = ending_sentence("train.py", 1, text.splitlines(), str(tmp_path))
    assert sentence.endswith("; transformers 5 has no `AdamW`; " + HF4 + ", or use `torch.optim.AdamW`") == told


def test_the_table_is_of_the_versions_of_the_pins() -> None:
    """Where this fails, the table's command makes it anew."""
    table, found = removed_apis.table(), pins.load()
    assert table["command"] == software_apis.COMMAND
    for name, versions in table["sets"].items():
        assert versions == software_apis.versions(name, found), f"run {software_apis.COMMAND}"
    rows = software_apis.profiles(found, table["sets"])
    assert table["profiles"].items() <= rows.items(), f"run {software_apis.COMMAND}"  # a user may have added one
    assert (pins.ROOT / "runtime" / "hints" / "software_apis.json").stat().st_size < 100_000


CHECK = """
import importlib, inspect, json, sys
import datasets, transformers
table, name = json.load(sys.stdin), sys.argv[1]
wrong = []
for module in (transformers, datasets):
    for sets, names in table["names"][module.__name__].items():
        for each in names.split():
            if "*" not in each and each.islower() == False and hasattr(module, each) != (name in sets.split()):
                wrong.append(each)
for owner in ("TrainingArguments", "Seq2SeqTrainingArguments", "Trainer", "Seq2SeqTrainer"):
    has = inspect.signature(getattr(transformers, owner).__init__).parameters
    for sets, names in table["keywords"][f"transformers:{owner}.__init__"].items():
        wrong += [f"{owner}:{each}" for each in names.split() if (each in has) != (name in sets.split())]
print(json.dumps(wrong))
"""


@pytest.mark.slow
def test_the_table_agrees_with_the_installed_packages() -> None:
    """As far as importing them tells: transformers hides what wants a package that is not installed."""
    versions = {name: importlib.metadata.version(name) for name in ("transformers", "datasets")}
    sets = removed_apis.table()["sets"]
    name = next(each for each in sets if versions.items() <= sets[each].items())
    command = [sys.executable, "-c", CHECK, name]
    run = subprocess.run(command, input=json.dumps(removed_apis.table()), capture_output=True, text=True, check=True)
    assert set(json.loads(run.stdout.splitlines()[-1])) <= {"VideoProcessorMixin", "PilBackend"}


REPLACED = """
import importlib, inspect, json, sys
import accelerate, transformers
taken = inspect.signature(transformers.TrainingArguments.__init__).parameters
names, keywords = json.load(sys.stdin)
of_accelerator = inspect.signature(accelerate.Accelerator).parameters
print(json.dumps([
    *(each for each in names if not hasattr(transformers, each)), *(each for each in keywords if each not in taken),
    *(each for each in ("dataloader_config", "project_dir") if each not in of_accelerator),
]))
"""


@pytest.mark.slow
def test_what_takes_the_place_of_a_name_is_there() -> None:
    table = removed_apis.table()
    gone = {
        "names": table["names"]["transformers"]["hf4"].split(),
        "keywords": table["keywords"]["transformers:TrainingArguments.__init__"]["hf4"].split(),
    }
    told = {
        kind: {name for each in names for name in LATER.findall(removed_apis.replacement("transformers", each, kind))}
        for kind, names in gone.items()
    }
    assert {"ViTImageProcessor", "AutoModelForImageTextToText"} <= told["names"]
    assert {"eval_strategy", "use_cpu", "warmup_steps", "optim", "hub_model_id", "fsdp_config"} <= told["keywords"]
    given = json.dumps([sorted(told["names"]), sorted(told["keywords"])])
    run = subprocess.run([sys.executable, "-c", REPLACED], input=given, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout.splitlines()[-1]) == []


def test_the_image_says_its_profile(tmp_path: Path) -> None:
    path = tmp_path / "software.json"
    assert removed_apis.installed(path).profile == ""
    path.write_text(json.dumps({"name": "hf4", "profile": "cpu-hf4", "environment": {}}))
    here = removed_apis.installed(path)
    assert (here.profile, here.cuda) == ("cpu-hf4", False)
    assert here.versions["transformers"] == importlib.metadata.version("transformers")


def test_a_hint_that_fails_leaves_the_failure_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(removed_apis, "installed")
    text = RAISED.format(code=tmp_path, last=tmp_path / "loop.py")
    sentence = ending_sentence("train.py", 1, text.splitlines(), str(tmp_path))
    assert sentence.endswith("(raised at loop.py:3 in x)")
