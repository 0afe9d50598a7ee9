"""The real server as a process of its own: start, /ping, answers, signals, and the sentences it ends with."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from berth.contract.launch_options import OF_TRAINING
from berth.images import pins
from berth.serve import settings
from berth.serve.limits import MEBIBYTE, RequestLimits
from berth.serve.settings import (
    ServerSettings,
    SettingError,
    TransformSettings,
    execution_parameters,
    idle_variables,
    listen,
    read_settings,
    worker_settings,
)
from berth.serve.workers.pool import WorkerSettings
from tests.unit.serve.in_process import free_port

ASKED = {"inputs": {"question": "What is used?", "context": "This model is used with sagemaker for inference."}}


class Server:
    """`serve` in a process of its own, with its model under a base folder as SageMaker has it."""

    def __init__(self, base: Path, port: int, *arguments: str, **environment: str) -> None:
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)
        variables = {"SAGEMAKER_BASE_DIR": str(base), "SAGEMAKER_BIND_TO_PORT": str(port), "OMP_NUM_THREADS": "1"}
        variables["BERTH_GRAPH_DIR"] = str((base / "model").resolve().parent / "graph")
        kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "HOME") if key in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "berth.serve.entry", *arguments],
            env=kept | variables | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, path: str, status: int, seconds: float = 60) -> httpx.Response:
        """The first answer with this status, or the last one; asks until `seconds` have passed."""
        end = time.monotonic() + seconds
        while True:
            try:
                response = self.client.get(path)
                if response.status_code == status or time.monotonic() > end:
                    return response
            except httpx.TransportError:
                assert self.process.poll() is None, self.process.communicate()[0]
                assert time.monotonic() < end
            time.sleep(0.1)

    def end(self, seconds: float = 30) -> tuple[int, list[str]]:
        """Exit code and lines of the log, once the process has ended."""
        output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, output.splitlines()


@contextmanager
def serving(base: Path, *arguments: str, port: int | None = None, **environment: str) -> Iterator[Server]:
    server = Server(base, port or free_port(), *arguments, **environment)
    try:
        yield server
    finally:
        server.client.close()
        server.process.kill()
        server.process.communicate()


@pytest.fixture
def base(tiny_model: Path, tmp_path: Path) -> Path:
    (tmp_path / "model").symlink_to(tiny_model)
    return tmp_path


@pytest.mark.slow
def test_from_start_to_stop(base: Path) -> None:
    with serving(base, "serve") as server:
        loading = server.wait_for("/ping", 503)
        assert (loading.status_code, loading.json()) == (
            503,
            {"error": "the model is being loaded: ask again in a few seconds", "error_type": "not_ready"},
        )
        ready = server.wait_for("/ping", 200)
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "precision": "fp32"})
        answer = server.client.post("/invocations", json=ASKED)
        assert answer.status_code == 200
        assert answer.json()["answer"] in ASKED["inputs"]["context"]
        assert "server" not in answer.headers
        # SIGTERM arrives while a request is half sent: it is answered, and the process ends with 0.
        context = ASKED["inputs"]["context"] * 200
        body = json.dumps({"inputs": {"question": "What is used?", "context": context}}).encode()
        last = server.client.post("/invocations", content=stopped_halfway(server, body))
        assert last.status_code == 200
        assert last.json()["answer"] in context
        code, lines = server.end()
        assert code == 0
    # Every line is ours, none is a warning: what a library has to say at a healthy start is not the user's business.
    starts = [
        "berth: listening on port ",
        "berth: model: ",
        "berth: engine: OpenVINO ",
        "berth: ready: loaded in ",
        "berth: POST /invocations 200 in ",
        "berth: POST /invocations 200 in ",
        "berth: stopped, exit code 0",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts


def stopped_halfway(server: Server, body: bytes) -> Iterator[bytes]:
    """The body in two parts, with SIGTERM to the server between them."""
    yield body[:1000]
    time.sleep(0.3)  # the server has read the first part by then
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    yield body[1000:]


@pytest.mark.slow
def test_a_stop_refuses_what_is_new_at_the_open_port_and_answers_what_was_accepted(base: Path) -> None:
    with serving(base) as server:
        server.wait_for("/ping", 200)
        body = json.dumps({"inputs": {"question": "What?", "context": "This model. " * 400}}).encode()
        seen: list[httpx.Response] = []

        def in_two_parts() -> Iterator[bytes]:
            yield body[:100]
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            with httpx.Client(base_url=server.client.base_url, trust_env=False) as another:
                seen.append(another.get("/ping"))
                seen.append(another.post("/invocations", json=ASKED))
            yield body[100:]

        answered = server.client.post("/invocations", content=in_two_parts())
        code, lines = server.end()
    assert answered.status_code == 200
    told = {"error": "the server stops: send the request to another", "error_type": "not_ready"}
    assert [(each.status_code, each.json()) for each in seen] == [(503, told)] * 2
    assert (code, lines[-1]) == (0, "berth: stopped, exit code 0")


def test_a_stop_while_loading_does_not_wait(base: Path) -> None:
    with serving(base) as server:
        assert server.wait_for("/ping", 503).status_code == 503
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        code, lines = server.end()
        assert (code, lines[-1]) == (0, "berth: stopped, exit code 0")
        assert time.monotonic() - began < 5


def test_a_body_does_not_wait_until_its_header_is_acknowledged() -> None:
    with listen(free_port()) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_taken_port(base: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        with serving(base, port=port) as server:
            sentence = f"port {port} is taken: stop what listens there or set SAGEMAKER_BIND_TO_PORT"
            assert server.end() == (1, [f"berth: error: {sentence}"])


def test_a_broken_model_is_named_by_ping_and_by_the_log(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    sentence = f"{tmp_path}/model has no config.json, nor has a folder in it: put the files of one model there"
    with serving(tmp_path, BERTH_FAILURE_GRACE="1") as server:
        response = server.wait_for("/ping", 503)
        while response.json()["error"].startswith("the model is being loaded"):
            response = server.wait_for("/ping", 503)
        assert (response.status_code, response.json()) == (503, {"error": sentence, "error_type": "not_ready"})
        code, lines = server.end()
        assert code == 1
        assert f"berth: error: {sentence}" in lines
        assert lines[-1] == "berth: stopped, exit code 1"


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["train"], 2, "berth: error: this is the inference image: to train, run the training image (berth-train)"),
        (
            ["serve", "--port", "80"],
            2,
            "berth: error: `serve` takes no arguments (`serve --port 80`): settings are environment variables",
        ),
        (["echo", "two words", "*"], 0, "two words *"),
        (
            ["no-such-command"],
            127,
            "berth: error: `no-such-command` is no command in this image: run it without arguments to serve",
        ),
    ],
    ids=["train", "options", "a command", "no command"],
)
def test_arguments(tmp_path: Path, arguments: list[str], code: int, output: str) -> None:
    with serving(tmp_path, *arguments) as server:
        assert server.end() == (code, [output])


def test_settings_have_sagemakers_defaults() -> None:
    assert read_settings({}) == ServerSettings(8080, Path("/opt/ml/model"), 25 * 1024 * 1024, 32_768, 10)


def test_settings_come_from_sagemakers_variables() -> None:
    given = {
        "SAGEMAKER_BIND_TO_PORT": "9000",
        "SAGEMAKER_BASE_DIR": "/elsewhere",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "100",
        "BERTH_MAX_REQUEST_TOKENS": "1000000",
        "BERTH_FAILURE_GRACE": "0",
        "SAGEMAKER_MODEL_SERVER_WORKERS": "3",
        "SAGEMAKER_MODEL_SERVER_TIMEOUT": "120",
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv",
    }
    asked = ServerSettings(
        port=9000,
        model_dir=Path("/elsewhere/model"),
        payload=100 * MEBIBYTE,
        request_tokens=1_000_000,
        failure_grace=0,
        workers=3,
        seconds=120,
        transform=TransformSettings(payload_mb=100),
        accept="text/csv",
    )
    assert read_settings(given) == asked


def test_a_batch_transform_waits_longer() -> None:
    assert read_settings({"SAGEMAKER_BATCH": "true"}).seconds == 595
    assert read_settings({"SAGEMAKER_BATCH": "true", "SAGEMAKER_MODEL_SERVER_TIMEOUT": "9"}).seconds == 9
    assert read_settings({"SAGEMAKER_BATCH": ""}).seconds == 55


def test_both_timeouts_are_seconds() -> None:
    assert read_settings({"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "7"}).seconds == 7
    both = {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "2", "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "120"}
    assert read_settings(both).seconds == 120


def test_a_body_may_be_as_large_as_it_is() -> None:
    limits = RequestLimits(payload=read_settings({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}).payload, tokens=10**8)
    assert limits.body == 64 * 10**8


def test_a_batch_transform_sends_more_in_a_body() -> None:
    assert RequestLimits().body_tokens == RequestLimits().tokens
    batch = RequestLimits(batch=read_settings({"SAGEMAKER_BATCH": "True"}).batch)
    assert (batch.tokens, batch.body_tokens, batch.body) == (32_768, 64 * 32_768, 25 * MEBIBYTE)


@pytest.mark.parametrize(
    ("environ", "workers", "parameters"),
    [
        ({}, 1, (1, "MULTI_RECORD", 6)),
        ({}, 8, (8, "MULTI_RECORD", 6)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "50"}, 8, (2, "MULTI_RECORD", 50)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "500"}, 8, (1, "MULTI_RECORD", 500)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, 8, (8, "MULTI_RECORD", 0)),
        (
            {"SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "30", "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD"},
            1,
            (30, "SINGLE_RECORD", 6),
        ),
    ],
)
def test_what_a_batch_transform_does_unasked(
    environ: dict[str, str], workers: int, parameters: tuple[int, str, int]
) -> None:
    found = execution_parameters(read_settings(environ), workers)
    assert list(found) == ["MaxConcurrentTransforms", "BatchStrategy", "MaxPayloadInMB"]
    assert tuple(found.values()) == parameters


@pytest.mark.parametrize(
    ("name", "value", "known"),
    [
        ("SAGEMAKER_BATCH_STRATEGY", "multi", "MULTI_RECORD, SINGLE_RECORD"),
        (
            "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT",
            "text/html",
            "application/json, application/jsonlines, text/csv",
        ),
    ],
)
def test_settings_that_are_none_of_those_known(name: str, value: str, known: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({name: value})
    assert str(caught.value) == f"{name} is `{value}`: it must be one of {known}"


@pytest.mark.parametrize(("text", "level"), [("", 20), ("10", 10), ("warning", 30), ("ERROR", 40)])
def test_the_level_of_the_log_is_a_number_or_a_name(text: str, level: int) -> None:
    assert read_settings({"SAGEMAKER_CONTAINER_LOG_LEVEL": text}).log_level == level


def test_a_level_of_the_log_that_is_none_is_refused() -> None:
    with pytest.raises(SettingError, match=r"LOG_LEVEL is `loud`: it must be one of debug, info, warning, error, crit"):
        read_settings({"SAGEMAKER_CONTAINER_LOG_LEVEL": "loud"})


def test_another_task_is_for_the_models_own_code_only(tmp_path: Path) -> None:
    assert read_settings({"HF_TASK": "question-answering"}) == ServerSettings()
    other = {"HF_TASK": "text-classification", "SAGEMAKER_BASE_DIR": str(tmp_path)}
    with pytest.raises(SettingError) as caught:
        read_settings(other)
    assert str(caught.value) == (
        "HF_TASK is `text-classification`: this image answers questions (question-answering); for another task give "
        "the model a code/inference.py of its own"
    )
    (tmp_path / "model/code").mkdir(parents=True)
    (tmp_path / "model/code/inference.py").write_text("def predict_fn(data, model): ...")
    assert read_settings(other).task == "text-classification"


def test_what_is_set_without_effect_is_known(tmp_path: Path) -> None:
    given = ("TS_MAX_REQUEST_SIZE", "SAGEMAKER_SAFE_PORT_RANGE", "MMS_JOB_QUEUE_SIZE", "SAGEMAKER_TS_BATCH_SIZE")
    others = {"SAGEMAKER_BIND_TO_PORT": "8080", "PATH": "/bin", "SAGEMAKER_REGION": "eu-west-1", "TS_EMPTY": ""}
    chosen = ServerSettings(model_dir=tmp_path)
    assert idle_variables(chosen, dict.fromkeys(given, "1") | others) == sorted(given)
    hub = {"HF_MODEL_ID": "a/b", "HF_MODEL_REVISION": "main"}
    assert idle_variables(chosen, hub) == []
    (tmp_path / "config.json").touch()
    assert idle_variables(chosen, hub) == sorted(hub)


def test_a_name_that_is_nearly_ours_is_refused() -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({"BERTH_PRECISON": "int8"})
    assert str(caught.value) == "the variable BERTH_PRECISON is not known: did you mean BERTH_PRECISION?"
    # BERTH_FAILURE_FILE is near BERTH_FAILURE_GRACE, and the training image's own.
    assert read_settings(dict.fromkeys(OF_TRAINING, "mpi") | {"BERTH_COLOUR": "red"}) == ServerSettings()


def test_names_that_nobody_reads_are_told(tmp_path: Path) -> None:
    chosen = ServerSettings(model_dir=tmp_path)
    others = ["SAGEMAKER_MODEL_DIR", "SAGEMAKER_MODEL_SERVER_VMARGS", "SAGEMAKER_MODEL_SERVER_WORKERS", *OF_TRAINING]
    given = ["SAGEMAKER_MODEL_SERVER_WORKER", "BERTH_COLOUR", "BERTH_DISTRIBUTON", "BERTH_PRECISION"]
    assert idle_variables(chosen, dict.fromkeys(others + given, "1")) == [
        "BERTH_COLOUR",
        "BERTH_DISTRIBUTON",
        "SAGEMAKER_MODEL_SERVER_WORKER (did you mean SAGEMAKER_MODEL_SERVER_WORKERS?)",
    ]


def test_every_variable_that_the_server_reads_is_known() -> None:
    read: set[str] = set()
    for path in [*(pins.ROOT / "serve").rglob("*.py"), pins.ROOT / "runtime/engines/choose.py"]:
        read |= set(re.findall(r'"((?:SAGEMAKER|BERTH)_[A-Z_]*[A-Z])"', path.read_text("utf-8")))
    assert read == {*settings._OURS, *settings._SAGEMAKERS, *settings._IDLE}


@pytest.mark.parametrize(
    ("environ", "most"),
    [
        ({}, 0),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, 0),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2"}, 0),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "3"}, 2 * MEBIBYTE),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "3", "BERTH_MAX_REQUEST_TOKENS": "65536"}, 0),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "128", "SAGEMAKER_BATCH": "true"}, 0),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "129", "SAGEMAKER_BATCH": "true"}, 128 * MEBIBYTE),
    ],
)
def test_a_payload_that_the_tokens_do_not_allow_is_told(environ: dict[str, str], most: int) -> None:
    told = f"SAGEMAKER_MAX_PAYLOAD_IN_MB (a body may have {most} bytes, by its tokens: raise BERTH_MAX_REQUEST_TOKENS)"
    assert idle_variables(read_settings(environ), environ) == ([told] if most else [])


@pytest.mark.parametrize(("text", "multi_model"), [("", False), ("True", True), (" false ", False)])
def test_many_models_are_asked_for_in_one_way(text: str, *, multi_model: bool) -> None:
    assert read_settings({"SAGEMAKER_MULTI_MODEL": text}).multi_model is multi_model


@pytest.mark.parametrize("text", ["yes", "1", "ture"])
def test_many_models_are_asked_for_in_no_other_way(text: str) -> None:
    with pytest.raises(SettingError) as caught:  # once, although the code for the task is looked for with it
        read_settings({"SAGEMAKER_MULTI_MODEL": text, "HF_TASK": "another"})
    assert str(caught.value) == f"SAGEMAKER_MULTI_MODEL is `{text}`: it must be true or false"


def test_all_that_is_wrong_is_told_at_once_before_anything_listens(tmp_path: Path) -> None:
    wrong = {
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "abc",
        "SAGEMAKER_BIND_TO_PORT": "99999",
        "BERTH_MAX_REQUEST_TOKENS": "-1",
        "BERTH_LOG_FORMAT": "xml",
        "BERTH_PRECISION": "fp8",
    }
    with serving(tmp_path, **wrong) as server:
        code, lines = server.end()
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("berth: error: ")
    told = lines[0].removeprefix("berth: error: ").split("; ")
    assert sorted(each.partition(": it must be ")[0] for each in told) == sorted(
        f"{name} is `{value}`" for name, value in wrong.items()
    )


def test_workers_share_what_there_is() -> None:
    folder = Path("/opt/ml/model")

    def workers(gpus: int, threads: int, visible: str | None = None, count: int = 0) -> list[WorkerSettings]:
        return worker_settings(ServerSettings(workers=count), gpus, threads, visible)

    assert workers(0, 16) == [WorkerSettings(folder, 16, "cpu")]
    assert workers(0, 16, count=3) == [WorkerSettings(folder, 5, "cpu")] * 3
    assert workers(0, 2, count=4) == [WorkerSettings(folder, 1, "cpu")] * 4
    gpu = [WorkerSettings(folder, 4, "cuda", {"CUDA_VISIBLE_DEVICES": name}) for name in ("0", "1")]
    assert workers(2, 8) == gpu
    assert [each.environment["CUDA_VISIBLE_DEVICES"] for each in workers(2, 8, "5,GPU-a", 3)] == [
        "5",
        "GPU-a",
        "5",
    ]


@pytest.mark.parametrize(
    ("name", "value", "range_of"),
    [
        ("SAGEMAKER_BIND_TO_PORT", "http", "1 to 65535"),
        ("SAGEMAKER_BIND_TO_PORT", "70000", "1 to 65535"),
        ("SAGEMAKER_MAX_PAYLOAD_IN_MB", "-1", "0 to 1024"),
        ("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", "0", "1 to 86400"),
        ("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", "many", "1 to 100"),
        ("BERTH_MAX_REQUEST_TOKENS", "100", "512 to 100000000"),
        ("BERTH_FAILURE_GRACE", "-1", "0 to 3600"),
        ("SAGEMAKER_MODEL_SERVER_WORKERS", "0", "1 to 256"),
        ("SAGEMAKER_MODEL_SERVER_TIMEOUT", "soon", "1 to 86400"),
    ],
)
def test_settings_that_are_no_numbers(name: str, value: str, range_of: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({name: value})
    assert str(caught.value) == f"{name} is `{value}`: it must be a whole number from {range_of}"


ON_A_GPU = """
import sys
from berth.runtime.gpu import driver
driver.torch_cuda, driver.count_gpus = lambda: "13.0", lambda *_: 1
from berth.serve.entry import main
sys.exit(main(["serve"]))
"""


def test_a_gpu_that_torch_can_not_drive_is_told_before_torch_is_imported(
    tmp_path: Path, libcuda: Callable[..., Path]
) -> None:
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    v100 = {"FAKE_CUDA_VERSION": "13000", "FAKE_CUDA_DEVICES": "Tesla V100-SXM2-16GB:7.0"}
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-c", ON_A_GPU],
        env=kept | v100 | {"LD_LIBRARY_PATH": str(libcuda(tmp_path))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 1
    assert len(said) == 1
    assert said[0].startswith("berth: error: Tesla V100-SXM2-16GB has compute capability 7.0 but this image's torch")
    assert said[0].endswith("use an image of profile cu124.")
    assert " torch\n" not in done.stderr


def test_a_server_does_without_a_gpu_that_is_lost(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    two = {"FAKE_CUDA_VERSION": "13000", "FAKE_CUDA_DEVICES": "NVIDIA A10G:8.6,NVIDIA A10G:8.6"}
    ours = {"SAGEMAKER_BASE_DIR": str(tmp_path), "SAGEMAKER_BIND_TO_PORT": str(free_port()), "BERTH_FAILURE_GRACE": "0"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", ON_A_GPU.replace("lambda *_: 1", "lambda *_: 4")],
        env=kept | two | ours | {"LD_LIBRARY_PATH": str(libcuda(tmp_path / "lib"))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = done.stderr.splitlines()
    assert lines[0] == "berth: the driver offers 2 of 4 GPUs here (look at nvidia-smi and dmesg on the host)"
    assert any(line.startswith("berth: listening on port ") for line in lines)
