"""The server in its own process: start, /ping, answers, signals, exit codes and errors."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from berth.serve.http.server import FINISH_WITHIN
from berth.serve.http.sockets import listen
from tests.files import write_files
from tests.ports import free_port
from tests.unit.serve.http.server_process import serving

REQUEST = {"inputs": {"question": "What is used?", "context": "This model is used with sagemaker for inference."}}


@pytest.fixture
def base(tiny_model: Path, tmp_path: Path) -> Path:
    (tmp_path / "model").symlink_to(tiny_model)
    return tmp_path


@pytest.mark.slow
def test_server_from_start_to_sigterm(base: Path) -> None:
    with serving(base, "serve") as server:
        loading = server.wait_for("/ping", 503)
        assert (loading.status_code, loading.json()) == (
            503,
            {"error": "the model is being loaded: ask again in a few seconds", "error_type": "not_ready"},
        )
        ready = server.wait_for("/ping", 200)
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "precision": "fp32"})
        answer = server.client.post("/invocations", json=REQUEST)
        assert answer.status_code == 200
        assert answer.json()["answer"] in REQUEST["inputs"]["context"]
        assert "server" not in answer.headers
        server.process.send_signal(signal.SIGTERM)
        code, lines = server.end()
        assert code == 0
    # All lines are ours and none is a warning: libraries log nothing at a healthy start.
    starts = [
        "berth: listening on port ",
        "berth: model: ",
        "berth: engine: OpenVINO ",
        "berth: ready: loaded in ",
        "berth: POST /invocations 200 in ",
        "berth: stopped, exit code 0",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts


@pytest.mark.slow
def test_stopping_server_refuses_new_requests_and_answers_accepted_ones(base: Path) -> None:
    with serving(base) as server:
        server.wait_for("/ping", 200)
        body = json.dumps({"inputs": {"question": "What?", "context": "This model. " * 400}}).encode()
        seen: list[httpx.Response] = []

        def in_two_parts() -> Iterator[bytes]:
            yield body[:100]
            with httpx.Client(base_url=server.client.base_url, trust_env=False) as another:
                while "berth_active_requests 1.0" not in another.get("/metrics").text:
                    pass
                server.process.send_signal(signal.SIGTERM)
                while (ping := another.get("/ping")).status_code == 200:
                    pass
                seen.append(ping)
                seen.append(another.post("/invocations", json=REQUEST))
            yield body[100:]

        answered = server.client.post("/invocations", content=in_two_parts())
        code, lines = server.end()
    assert answered.status_code == 200
    stopping = {"error": "the server is stopping: send the request to another one", "error_type": "not_ready"}
    assert [(each.status_code, each.json()) for each in seen] == [(503, stopping)] * 2
    assert (code, lines[-1]) == (0, "berth: stopped, exit code 0")


@pytest.mark.slow
def test_sigterm_while_loading_ends_the_server_at_once(base: Path) -> None:
    with serving(base) as server:
        assert server.wait_for("/ping", 503).status_code == 503
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        code, lines = server.end()
        assert (code, lines[-1]) == (0, "berth: stopped, exit code 0")
        assert time.monotonic() - began < 5


STOPPED_SOON = """
import sys
from berth.serve.http import server
server.FINISH_WITHIN = 1
from berth.serve.entry import main
sys.exit(main(["serve"]))
"""
NEVER = "import time\ndef model_fn(model_dir): ...\ndef predict_fn(data, model):\n    time.sleep(600)\n"


@pytest.mark.slow
def test_slow_request_gets_503_before_sagemakers_sigkill(tmp_path: Path) -> None:
    with serving(write_files(tmp_path, {"model/code/inference.py": NEVER}), run=("-c", STOPPED_SOON)) as server:
        server.wait_for("/ping", 200)
        with ThreadPoolExecutor() as clients:
            pending = clients.submit(server.client.post, "/invocations", json=1)
            time.sleep(0.5)
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            code, lines = server.end()
            took = time.monotonic() - began
    assert pending.result().status_code == 503
    assert pending.result().json()["error"] == "the server stopped before it could answer: send the request again"
    assert (code, lines[-1]) == (0, "berth: stopped, exit code 0")
    assert took - 1 < 2 * (30 - FINISH_WITHIN)  # twice the remaining time, because the machine may be busy


def test_accepted_connections_have_tcp_nodelay() -> None:
    with listen(free_port()) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


ENVIRONMENT = """
import os

def model_fn(model_dir):
    with open("/proc/self/environ") as file:
        return dict(line.split("=", 1) for line in file.read().split("\\0") if line)

def predict_fn(data, model):
    return [model.get(data), os.environ.get(data)]
"""


@pytest.mark.slow
@pytest.mark.parametrize("own", [{}, {"OMP_NUM_THREADS": "3", "HF_HUB_OFFLINE": "1"}], ids=["default", "set"])
def test_handler_inherits_thread_share_and_hub_setting(own: dict[str, str], tmp_path: Path) -> None:
    """A worker starts with OMP_NUM_THREADS, by default its share of the CPUs; HF_HUB_OFFLINE is as the user set it."""
    workers = str(len(os.sched_getaffinity(0)))
    environment = {"OMP_NUM_THREADS": "", "SAGEMAKER_MODEL_SERVER_WORKERS": workers, **own}
    with serving(write_files(tmp_path, {"model/code/inference.py": ENVIRONMENT}), **environment) as server:
        server.wait_for("/ping", 200)
        threads = own.get("OMP_NUM_THREADS", "1")
        assert server.client.post("/invocations", json="OMP_NUM_THREADS").json() == [threads, threads]
        offline = own.get("HF_HUB_OFFLINE")
        assert server.client.post("/invocations", json="HF_HUB_OFFLINE").json() == [offline, offline]


def test_port_in_use_is_reported(base: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        with serving(base, port=port) as server:
            sentence = f"port {port} is in use: stop what listens there or set SAGEMAKER_BIND_TO_PORT"
            assert server.end() == (1, [f"berth: error: {sentence}"])


@pytest.mark.slow
def test_ping_and_log_report_a_missing_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    sentence = f"{tmp_path}/model holds no model: put the files of one model there, or a code/inference.py"
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
            "berth: error: `no-such-command` is not a command in this image: run it without arguments to serve",
        ),
    ],
    ids=["train", "options", "a command", "no command"],
)
def test_commands_and_arguments_of_the_image(tmp_path: Path, arguments: list[str], code: int, output: str) -> None:
    with serving(tmp_path, *arguments) as server:
        assert server.end() == (code, [output])


def test_all_invalid_settings_are_reported_before_the_port_opens(tmp_path: Path) -> None:
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
    faults = lines[0].removeprefix("berth: error: ").split("; ")
    assert sorted(each.partition(": it must be ")[0] for each in faults) == sorted(
        f"{name} is `{value}`" for name, value in wrong.items()
    )


ON_GPUS = """
import sys
from berth.runtime.gpu import driver
count = int(sys.argv.pop())
driver.torch_cuda, driver.count_gpus = lambda: "13.0", lambda *_: count
from berth.serve.entry import main
sys.exit(main(["serve"]))
"""


def end_on_gpus(count: int, devices: str, library: Path, *options: str, **environment: str) -> tuple[int, list[str]]:
    """Run the server where `count` GPUs are passed in and the driver offers `devices`; its exit code and lines."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    driver = {"FAKE_CUDA_VERSION": "13000", "FAKE_CUDA_DEVICES": devices, "LD_LIBRARY_PATH": str(library)}
    ended = subprocess.run(
        [sys.executable, "-P", *options, "-c", ON_GPUS, str(count)],
        env=kept | driver | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.returncode, ended.stderr.splitlines()


def test_unsupported_gpu_is_reported_before_torch_is_imported(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    code, output = end_on_gpus(1, "Tesla V100-SXM2-16GB:7.0", libcuda(tmp_path), "-X", "importtime")
    (line,) = [line for line in output if not line.startswith("import time:")]
    assert code == 1
    assert line.startswith("berth: error: Tesla V100-SXM2-16GB has compute capability 7.0 but this image's torch")
    assert line.endswith("use an image of profile cu124.")
    assert not [line for line in output if line.endswith(" torch")]


@pytest.mark.slow
def test_server_starts_without_a_lost_gpu(tmp_path: Path, libcuda: Callable[..., Path]) -> None:
    ours = {"SAGEMAKER_BASE_DIR": str(tmp_path), "SAGEMAKER_BIND_TO_PORT": str(free_port()), "BERTH_FAILURE_GRACE": "0"}
    _, lines = end_on_gpus(4, "NVIDIA A10G:8.6,NVIDIA A10G:8.6", libcuda(tmp_path / "lib"), **ours)
    assert lines[0] == "berth: the driver offers 2 of 4 GPUs here (look at nvidia-smi and dmesg on the host)"
    assert any(line.startswith("berth: listening on port ") for line in lines)
