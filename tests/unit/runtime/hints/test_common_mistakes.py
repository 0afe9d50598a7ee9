"""Common mistakes of scripts that move to SageMaker: each program runs, and its failure gets a hint."""

import sys
from pathlib import Path

import pytest

from berth.runtime.hints import hardware, replaced_packages
from berth.runtime.hints.images import ThisImage
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.table import last_line_remedy, remedy
from tests.files import write_files
from tests.unit.runtime.hints.programs import NOWHERE, remedy_in_process, remedy_of, run

PARSER = "import argparse, os\nparser = argparse.ArgumentParser()\n"
FLAGS = PARSER + (
    'parser.add_argument("--fp16", action="store_true")\nparser.add_argument("--epochs", type=int)\n'
    "print(parser.parse_args())\n"
)
LOWER = 'type=lambda v: v.lower() == "true"'


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (
            ["--epochs", "3", "--fp16", "True"],
            f'; fp16 is passed as "--fp16 True", but a store_true flag takes no value; use {LOWER}',
        ),
        (["--fp16=True"], f'; fp16 is passed as "--fp16=True", but a store_true flag takes no value; use {LOWER}'),
        (["--eposch", "3"], "; every hyperparameter is passed to the program: did you mean epochs for eposch?"),
        (
            ["--warmup", "3"],
            '; every hyperparameter is passed to the program: add parser.add_argument("--warmup"), or call '
            "parse_known_args()",
        ),
        (
            ["--local-rank=0"],
            '; a launcher passes each rank its number in the environment: read int(os.environ.get("LOCAL_RANK", 0)) '
            "instead of an argument",
        ),
    ],
)
def test_rejected_arguments(tmp_path: Path, arguments: list[str], hint: str) -> None:
    write_files(tmp_path, {"train.py": FLAGS})
    assert remedy_of(tmp_path, *arguments) == hint


@pytest.mark.parametrize("value", ["True", "False"])
def test_suggested_type_parses_flag_value(tmp_path: Path, value: str) -> None:
    write_files(tmp_path, {"train.py": FLAGS.replace('action="store_true"', LOWER)})
    assert f"fp16={value}" in run(tmp_path, "--fp16", value).stdout


@pytest.mark.parametrize(
    ("name", "environ", "hint"),
    [
        ("--local_rank", {}, '; give local_rank default=int(os.environ.get("LOCAL_RANK", 0))'),
        ("--model-dir", {}, '; give model-dir default=os.environ["SM_MODEL_DIR"] and required=False'),
        (
            "--train_dir",
            {"SM_CHANNEL_TRAINING": "/x"},
            '; give train_dir default=os.environ["SM_CHANNEL_TRAINING"] and required=False',
        ),
        (
            "--data-dir",
            {"SM_CHANNEL_TRAIN": "/x"},
            '; give data-dir default=os.environ["SM_CHANNEL_TRAIN"] and required=False',
        ),
        ("--epochs", {}, "; give the job the hyperparameter epochs"),
    ],
)
def test_missing_required_argument(tmp_path: Path, name: str, environ: dict[str, str], hint: str) -> None:
    write_files(tmp_path, {"train.py": f'{PARSER}parser.add_argument("{name}", required=True)\nparser.parse_args()\n'})
    assert remedy_of(tmp_path, environ=environ) == hint


RANKS = (
    "; the program runs once per host here, without ranks: set the job's variable BERTH_DISTRIBUTION to mpi, or read "
    'int(os.environ.get("{}", {}))'
)
CHANNELS = {"SM_CHANNEL_TRAIN": "/opt/ml/input/data/train", "SM_CHANNEL_TEST": "/opt/ml/input/data/test"}


@pytest.mark.parametrize(
    ("name", "environ", "hint"),
    [
        ("LOCAL_RANK", {}, RANKS.format("LOCAL_RANK", 0)),
        ("WORLD_SIZE", {}, RANKS.format("WORLD_SIZE", 1)),
        (
            "SM_CHANNEL_TRAINING",
            CHANNELS,
            "; the job's channels are test and train: read SM_CHANNEL_TRAIN, or name one training",
        ),
        ("SM_CHANNEL_X", {}, "; the job has no channels: give it data (fit(inputs), or --data)"),
        ("SM_CHANNEL_MODEL", {}, "; the job has no channels: give it data (fit(inputs), or --model)"),
        (
            "SM_HP_EPOCH",
            {"SM_HP_EPOCHS": "3"},
            "; the job has no hyperparameter epoch: give it one, or read SM_HP_EPOCHS",
        ),
        ("SM_MODEL_DIRS", {"SM_MODEL_DIR": "/opt/ml/model"}, "; read SM_MODEL_DIR"),
        (
            "WANDB_API_KEY",
            {},
            '; the job has no such variable: give it one, environment={"WANDB_API_KEY": "…"} (with build.py run: -e '
            "WANDB_API_KEY=…)",
        ),
    ],
)
def test_missing_environment_variable(tmp_path: Path, name: str, environ: dict[str, str], hint: str) -> None:
    write_files(tmp_path, {"train.py": f"import os\nprint(os.environ['{name}'])\n"})
    assert remedy_of(tmp_path, environ=environ) == hint


def test_key_error_of_own_dict_has_no_hint(tmp_path: Path) -> None:
    write_files(tmp_path, {"train.py": "print({}['LOCAL_RANK'])\n"})
    assert remedy_of(tmp_path) == ""


def test_process_group_without_rank_variables(tmp_path: Path) -> None:
    assert remedy_in_process(tmp_path, "import torch.distributed as d; d.init_process_group('gloo')") == RANKS.format(
        "RANK", 0
    )


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("torch.ones(1).cuda()", 'or use "cuda" if torch.cuda.is_available() else "cpu"'),
        ("torch.ones(1).to('cuda')", 'or use "cuda" if torch.cuda.is_available() else "cpu"'),
        ("torch.cuda.set_device(0)", 'or use "cuda" if torch.cuda.is_available() else "cpu"'),
        (
            "import torch.distributed as d; d.init_process_group('nccl', rank=0, world_size=1, store=d.HashStore())",
            '; without a GPU use init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        ),
    ],
)
def test_cuda_call_in_cpu_image(tmp_path: Path, code: str, hint: str) -> None:
    assert hint in remedy_in_process(tmp_path, f"import torch\n{code}")


@pytest.mark.parametrize(
    ("image", "hint"),
    [
        (ThisImage("cpu"), "`python build.py build train --profile cu130`"),
        (ThisImage("cu130", "13.0"), "this host has no GPU: choose an instance that has one"),
    ],
)
def test_cuda_hint_names_image_or_instance(image: ThisImage, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "this_image", lambda: image)
    raised = RaisedException("AssertionError", "Torch not compiled with CUDA enabled")
    assert hint in remedy(raised, NOWHERE)


def test_loading_gpu_weights_suggests_map_location() -> None:
    message = "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False."
    assert remedy(RaisedException("RuntimeError", message), NOWHERE) == '; load it with map_location="cpu"'


@pytest.mark.parametrize(
    ("opened", "hint"),
    [
        ("{train}/row.csv", "; channel train has rows.csv: did you mean rows.csv?"),
        ("./data/rows.csv", '; channel train has it: os.path.join(os.environ["SM_CHANNEL_TRAIN"], "rows.csv")'),
        (
            "/home/ec2-user/SageMaker/rows.csv",
            '; channel train has it: os.path.join(os.environ["SM_CHANNEL_TRAIN"], "rows.csv")',
        ),
        ("settings.json", "; your source folder has it as config/settings.json"),
        (
            "/opt/ml/input/data/training/x.csv",
            "; the job has no channel training; its channels are train ({train}): read SM_CHANNEL_TRAIN, or name one "
            "training",
        ),
        ("other.json", "; a job finds its data in its channels, here train ({train}), and other files in source_dir"),
        (
            "s3://bucket/rows.csv",
            "; give the job s3://bucket/rows.csv as a channel, and read it in the channel's folder",
        ),
    ],
)
def test_hint_names_place_of_missing_file(tmp_path: Path, opened: str, hint: str) -> None:
    train = tmp_path / "input/data/train"
    write_files(tmp_path, {"input/data/train/rows.csv": "a,b\n", "code/config/settings.json": "{}"})
    write_files(tmp_path / "code", {"train.py": f"open('{opened.format(train=train)}')\n"})
    sentence = remedy_of(tmp_path / "code", environ={"SM_CHANNEL_TRAIN": str(train)})
    assert sentence == hint.replace("{train}", str(train))


def test_unwritable_output_paths(tmp_path: Path) -> None:
    write_files(tmp_path, {"train.py": f"open('{tmp_path}/model/sub/model.pt', 'w')\n"})
    environ = {"SM_MODEL_DIR": str(tmp_path / "model")}
    assert remedy_of(tmp_path, environ=environ) == (
        f'; create the folder first: os.makedirs("{tmp_path}/model/sub", exist_ok=True)'
    )
    raised = RaisedException("OSError", "[Errno 30] Read-only file system: '/opt/ml/input/data/train/cache'")
    context = ProgramContext(tmp_path, environ={"SM_CHANNEL_TRAIN": "/opt/ml/input/data/train"})
    assert remedy(raised, context).startswith("; channels are read-only: write the model to SM_MODEL_DIR")


def test_missing_command(tmp_path: Path) -> None:
    write_files(tmp_path, {"train.py": "import subprocess\nsubprocess.run(['aws', 's3', 'ls'])\n"})
    assert remedy_of(tmp_path, environ={"PATH": "/nowhere"}) == (
        "; the image has no aws: build your own image FROM this one that installs it, or use boto3, which the image has"
    )
    line = "train.sh: line 3: git: command not found"
    assert "the image has no git" in last_line_remedy(line, NOWHERE)


def test_failing_hint_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaced_packages, "hint", None)
    monkeypatch.setitem(sys.modules, "berth.runtime.hints.missing_modules", None)  # an import that fails
    assert remedy(RaisedException("RuntimeError", "Attempting to deserialize object on a CUDA device"), NOWHERE)
    assert remedy(RaisedException("ValueError", "no rows"), NOWHERE) == ""


NO_CHANNEL = (
    "; the job has no channel training; its channels are train (/x): read SM_CHANNEL_TRAIN, or name one training"
)
NO_HUB = (
    "; the job does not reach the Hub: put the files into a channel, such as model, and load "
    'os.environ["SM_CHANNEL_MODEL"]'
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("datasets.load_dataset('csv', data_files='/opt/ml/input/data/training/x.csv')", NO_CHANNEL),
        ("datasets.load_from_disk('/opt/ml/input/data/training')", NO_CHANNEL),
        (
            "torch.save({}, '/opt/ml/model/x/y.pt')",
            '; create the folder first: os.makedirs("/opt/ml/model/x", exist_ok=True)',
        ),
    ],
)
def test_missing_file_messages_of_libraries(tmp_path: Path, call: str, hint: str) -> None:
    code = f"import {call.partition('.')[0]}\n{call}"
    assert remedy_in_process(tmp_path, code, {"SM_CHANNEL_TRAIN": "/x"}) == hint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("datasets.load_dataset('/opt/ml/input/data/training')", NO_CHANNEL),
        ("transformers.AutoTokenizer.from_pretrained('/opt/ml/input/data/training')", NO_CHANNEL),
        ("transformers.AutoTokenizer.from_pretrained('bert-base-uncased')", NO_HUB),
    ],
)
def test_missing_file_messages_of_offline_libraries(tmp_path: Path, call: str, hint: str) -> None:
    """In a new process: the libraries read HF_HUB_OFFLINE when they are imported."""
    write_files(tmp_path, {"train.py": f"import {call.partition('.')[0]}\n{call}\n"})
    environ = {"SM_CHANNEL_TRAIN": "/x", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    assert remedy_of(tmp_path, environ=environ) == hint
