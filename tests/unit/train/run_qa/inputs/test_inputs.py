"""Tests jobs with unusable input or hyperparameters, channels in FastFile mode, and a hub that can't be reached."""

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
import torch
from pyarrow import parquet

from berth.contract.errors import JobError
from berth.images.pins import pins
from berth.runtime.rank import Rank
from berth.train.run_qa import ranks
from berth.train.run_qa.inputs import hub


def replace_train(base: Path, name: str, content: bytes) -> None:
    """Replace the content of the channel train by one file."""
    folder = base / "input/data/train"
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / name).write_bytes(content)


def slow_tokenizer(base: Path) -> None:
    """Replace the tokenizer by one that transformers implements only in Python."""
    folder = base / "input/data/model"
    for file in folder.glob("*token*"):
        file.unlink()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    settings = {
        "tokenizer_class": "BertJapaneseTokenizer",
        "word_tokenizer_type": "basic",
        "subword_tokenizer_type": "character",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def nothing(base: Path) -> None:
    """Leave the job's folder as it is."""


Prepare = Callable[[Path], None]
REFUSED: dict[str, tuple[Prepare, dict[str, str], str]] = {
    "cut-off-json": (
        lambda base: replace_train(base, "a.json", b'{"data": ['),
        {},
        "a.json is not JSON, line 1 column 11",
    ),
    "slow-tokenizer": (slow_tokenizer, {}, "model has a slow tokenizer only, without offsets: use a model with a tok"),
    "unknown": (nothing, {"learning_rat": "1"}, "learning_rat is not known (did you mean learning_rate?)"),
    "contradiction": (nothing, {"bf16": "True", "dataloader_prefetch_factor": "2"}, "don't go together"),
    "long-question": (nothing, {"max_seq_length": "10", "doc_stride": "4"}, "is too long"),
    "types-and-ranges": (
        nothing,
        {"learning_rate": "fast", "per_device_train_batch_size": "-1", "max_seq_length": "x", "doc_stride": "400"},
        "3 hyperparameters can't be used: max_seq_length 'x' is not a whole number; learning_rate 'fast' is not a "
        "number; per_device_train_batch_size is -1 and must be at least 1; fix them",
    ),
    "missing-file": (nothing, {"train_file": "other.json"}, "File other.json does not exist"),
    "missing-model": (
        lambda base: shutil.rmtree(base / "input/data/model"),
        {"model_name_or_path": "/no/where"},
        "model_name_or_path /no/where does not exist",
    ),
    "stride": (
        nothing,
        {"max_seq_length": "40", "doc_stride": "36"},
        "doc_stride is 36 and no window can hold it: of its 40 tokens, 3 are special and at least one is the "
        "question's; set doc_stride to less than 36, or raise max_seq_length.",
    ),
    "stride-for-model": (
        nothing,
        {"max_seq_length": "384", "doc_stride": "128"},
        "no window can hold it: of its 64 tokens, the model's maximum, 3 are special and at least one is the "
        "question's; set doc_stride to less than 60.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("prepare", "hyperparameters", "sentence"), REFUSED.values(), ids=list(REFUSED))
def test_unusable_input_is_refused_and_nothing_is_written(
    prepare: Prepare,
    hyperparameters: dict[str, str],
    sentence: str,
    tmp_path: Path,
    tiny_model: Path,
    host: Any,
    new_job: Any,
) -> None:
    settings = {"max_seq_length": "48", "doc_stride": "8", "max_steps": "1"} | hyperparameters
    job = new_job(tmp_path / "job", tiny_model, settings)
    (job.base / "model").mkdir()
    (job.base / "model/of-an-earlier-job").write_text("kept")
    prepare(job.base)
    (end,) = host.run(job, code=1)
    last = end.err.splitlines()[-1]
    assert last.startswith("berth: error: ")
    assert sentence in last
    assert "Traceback" not in end.out + end.err
    assert {path.name: path.read_text() for path in (job.base / "model").iterdir()} == {"of-an-earlier-job": "kept"}
    assert not (job.base / "checkpoints").exists()


@pytest.mark.slow
def test_hosts_with_different_files_are_refused(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, few_steps, train=range(20 + rank)) for rank in (0, 1)]
    for end in host.run(*pair, code=1, LOCAL_RANK="0", LOCAL_WORLD_SIZE="1"):  # one rank per host
        assert "The train data differs between hosts" in end.err
    assert not (pair[0].base / "model").exists()


@pytest.fixture(scope="module")
def fastfile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to preload, with which files behave like those of a FastFile channel."""
    library = tmp_path_factory.mktemp("fastfile") / "fastfile_double.so"
    source = pins.ROOT / "tests/doubles/fastfile_double.c"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


@pytest.mark.slow
def test_fastfile_channels_are_read_once_without_mapping(
    tmp_path: Path, tiny_model: Path, new_job: Any, few_steps: dict[str, str], fastfile: Path, clean_environment: Any
) -> None:
    """Three channels are in FastFile mode. safetensors would map the model's weights, which FastFile does not allow."""
    job = new_job(tmp_path / "job", tiny_model, few_steps | {"export_openvino": "false"})
    channels = job.base / "input/data"
    train = json.loads((channels / "train/part.json").read_text())["data"][0]["paragraphs"]
    rows = [{**question, "context": each["context"]} for each in train for question in each["qas"]]
    parquet.write_table(arrow.Table.from_pylist(rows[:10]), channels / "train/a.parquet")
    (channels / "train/b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[10:]))
    (channels / "train/part.json").unlink()
    log = tmp_path / "opened"
    map_file = "import mmap, sys; file = open(sys.argv[1]); mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)"
    environment = {"LD_PRELOAD": str(fastfile), "FASTFILE_FOLDER": str(channels), "FASTFILE_LOG": str(log)}
    environment |= clean_environment | {"SAGEMAKER_BASE_DIR": str(job.base)}
    probe = [sys.executable, "-c", map_file, str(channels / "model/model.safetensors")]
    assert "OSError: [Errno 19]" in subprocess.run(probe, env=environment, capture_output=True, text=True).stderr
    log.unlink()
    command = [sys.executable, "-m", "berth.train.run_qa"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "train data: 20 of 20 questions" in result.stdout
    opened = log.read_text().splitlines()
    assert len(opened) == len(set(opened)) + opened.count(str(channels / "model/model.safetensors")) - 1
    read = ("train/a.parquet", "train/b.jsonl", "validation/part.json")
    assert {str(channels / name) for name in read} <= set(opened)


@pytest.fixture
def silent_hub() -> Iterator[str]:
    """The address of a hub that never answers: a port with a full queue of connections."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = []
        for _ in range(4):
            client = socket.socket()
            client.settimeout(0)
            client.connect_ex(server.getsockname())
            waiting.append(client)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for client in waiting:
            client.close()


@pytest.fixture
def refusing_hub() -> Iterator[str]:
    """The address of a port that refuses connections."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
def test_why_unreachable_names_the_reason(silent_hub: str, refusing_hub: str) -> None:
    began = time.monotonic()
    assert hub.why_unreachable(silent_hub, 0.5)
    assert time.monotonic() - began < 5
    assert "refused" in hub.why_unreachable(refusing_hub, 30)
    assert hub.why_unreachable("https://no-such-host.invalid", 30)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # answers 501
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert hub.why_unreachable(f"http://127.0.0.1:{server.server_port}", 30) == ""
        server.shutdown()


@pytest.mark.parametrize("names", [[None, Path("/a")], [str(Path(__file__))]])
def test_paths_need_no_hub(names: list[Any]) -> None:
    assert not hub.needs(names)
    assert hub.needs([*names, "bert-base-uncased"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hyperparameters", "address"),
    [
        pytest.param({"model_name_or_path": "bert-base-uncased"}, "silent_hub", marks=pytest.mark.nightly),
        ({"dataset_name": "squad"}, "refusing_hub"),
    ],
)
def test_unreachable_hub_is_reported_within_seconds(
    hyperparameters: dict[str, str],
    address: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tiny_model: Path,
    new_job: Any,
    clean_environment: dict[str, str],
) -> None:
    """huggingface_hub itself retries for half a minute if connections are refused, and longer without an answer."""
    endpoint = request.getfixturevalue(address)
    new_job(tmp_path, tiny_model, hyperparameters | {"doc_stride": "8", "cache_dir": str(tmp_path / "cache")})
    for channel in ("model",) if "model_name_or_path" in hyperparameters else ("train", "validation"):
        shutil.rmtree(tmp_path / "input/data" / channel)
    environment = {name: value for name, value in clean_environment.items() if not name.lower().endswith("_proxy")}
    environment |= {"HF_HUB_OFFLINE": "", "HF_ENDPOINT": endpoint, "SAGEMAKER_BASE_DIR": str(tmp_path)}
    code = (
        "import sys, time; from berth.train.run_qa import program; from berth.train.run_qa.inputs import hub; "
        "began = time.monotonic(); code = program.main(); print('took', time.monotonic() - began); sys.exit(code)"
    )
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 1
    assert f"warning: the hub, {endpoint}, can't be reached (" in result.stdout
    assert "if the job can't reach the hub, pass the " in result.stderr.splitlines()[-1]
    assert float(result.stdout.splitlines()[-1].split()[1]) < hub.SECONDS + 20
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("gpus", "text"), [(1, "1 GPU and runs 2 ranks"), (0, "0 GPUs and runs 2 ranks")])
def test_more_ranks_than_gpus_are_refused(gpus: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(JobError, match=f"This host has {text}, which need one each: run {gpus} .*use_cpu to true"):
        ranks.start_group(Rank(0, 0, 2, 2), "nccl", 60, cuda=True)
