"""Fixtures that run jobs in containers, for the tests of the training image.

`train_job` runs a job as `build.py run train` does and records each line with its time. `lone_hosts` starts containers
one by one, for jobs that `build.py` can't run: hosts with the same host name, or a host that never starts.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from bench.jobs.containers import host_options, started_hosts
from bench.jobs.small import write_model
from berth.common import labels
from berth.images.pins import pins, pins_file
from berth.local import opt_ml
from berth.local.train.job import TrainingJob, TrainOutcome, run_training_job
from tests.images.serve.served import Served

IMAGE = os.environ.get("BERTH_IMAGE") or f"berth-train:{os.environ.get('BERTH_PROFILE', pins.DEFAULT_PROFILE)}"
LIMIT_SECONDS = 180.0
SCRIPTS = Path(__file__).parent / "scripts"
TRAINER = (SCRIPTS / "trainer_alone.py").read_text()

_PROFILE = pins_file.load().profile(os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE))
# Whether the images have transformers 4, for which run_qa is not made.
OLDER = not _PROFILE.runs_berth
# Scripts of early 2023 need the versions of hf4; other old versions may lack load_metric.
collect_ignore = [] if _PROFILE.software.name == "hf4" else ["test_hf4.py"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need transformers 5 if the image has 4."""
    deselected = [item for item in items if OLDER and item.get_closest_marker("transformers5")]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]


# Lines that look like a warning or an error of any library.
SUSPICIOUS = re.compile(
    r"\b(WARNING|WARN|ERROR|CRITICAL|FATAL)\b|[A-Z]\w+Warning\b|^\W*(warning|error)\b|: (warning|error):|Traceback"
    r"|^\[[WEF]\d* |^[WEF]\d{4} ",
    re.MULTILINE,
)


@pytest.fixture(scope="session")
def unexpected_lines() -> Callable[..., list[str]]:
    """`unexpected_lines(log, *expected)`: warnings and errors that match no expected pattern."""

    def find(log: str, *expected: str) -> list[str]:
        suspicious = [line for line in log.splitlines() if SUSPICIOUS.search(line.partition(" | ")[2] or line)]
        return [line for line in suspicious if not any(re.search(pattern, line) for pattern in expected)]

    return find


@dataclass(frozen=True)
class Ran:
    """A finished job: its lines with their times, and the time at which each host's container exited."""

    outcome: TrainOutcome
    lines: list[tuple[float, str]]
    ended: Mapping[str, float] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def lines_of(self, host: str) -> list[str]:
        """The lines of one host, without its name."""
        return [line.removeprefix(f"{host} | ") for _, line in self.lines if line.startswith(f"{host} | ")]

    def when(self, pattern: str) -> float:
        """The time of the last matching line; the test fails without a match."""
        times = [at for at, line in self.lines if re.search(pattern, line)]
        assert times, f"no line matches {pattern}:\n{self.log}"
        return times[-1]

    def sentences(self) -> dict[str, str]:
        """The first line of each host's failure file."""
        return {host: (text.splitlines() or [""])[0] for host, text in self.outcome.failures.items()}


def deaths(client: docker.DockerClient, since: float) -> dict[str, float]:
    """Host → time at which its container exited, from the engine's events (seconds since the epoch)."""
    mine = {"type": "container", "event": "die", "label": f"{labels.PID}={os.getpid()}"}
    events = client.events(since=int(since), until=int(time.time()) + 1, filters=mine, decode=True)
    exit_times = {}
    for event in events:
        if event["timeNano"] / 1e9 >= since:
            name = event["Actor"]["Attributes"]["name"]
            exit_times[re.sub(r"^berth-\d+-\d+-[0-9a-f]+-", "", name)] = event["timeNano"] / 1e9
    return exit_times


@pytest.fixture(scope="session")
def tiny_model(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one small layer with random weights and the demo's tokenizer."""
    return write_model(tmp_path_factory.mktemp("tiny-model"), pretrained)


Channels = Callable[..., dict[str, Path]]


@pytest.fixture
def channels(tmp_path: Path) -> Channels:
    """`channels(train=…, validation=…)` writes one file per channel, from a text or a JSON object."""

    def write(**contents: Any) -> dict[str, Path]:
        folders = {}
        for name, content in contents.items():
            folders[name] = tmp_path / "data" / name
            folders[name].mkdir(parents=True)
            text = content if isinstance(content, str) else json.dumps(content)
            (folders[name] / "data.json").write_text(text, encoding="utf-8")
        return folders

    return write


TrainJob = Callable[..., Ran]


@pytest.fixture(scope="session")
def train_job(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    """Runs a job; the arguments are the image and the fields of TrainingJob. pytest prints the log on failure."""

    def run(data: Mapping[str, Path], image: str = IMAGE, **job: Any) -> Ran:
        lines: list[tuple[float, str]] = []
        began = time.time()

        def log(line: str) -> None:
            lines.append((time.time(), line))
            print(f"{time.time() - began:6.2f} {line}")

        job.setdefault("output", tmp_path_factory.mktemp("output"))
        outcome = run_training_job(TrainingJob(data, timeout=LIMIT_SECONDS, **job), image=image, log=log, say=print)
        return Ran(outcome, lines, deaths(client, began))

    return run


@pytest.fixture(scope="session")
def user_job(train_job: TrainJob, tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    """Runs a user's program: the file `program` of `files` (name → content), with some data as channel train."""
    data = tmp_path_factory.mktemp("user-data")
    (data / "rows.txt").write_text("1\n")

    def run(
        files: Mapping[str, str | bytes],
        program: str,
        hyperparameters: Mapping[str, str] = {},
        channels: Mapping[str, Path] = {},
        **job: Any,
    ) -> Ran:
        code = tmp_path_factory.mktemp("code")
        for name, content in files.items():
            (code / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        settings = {"sagemaker_program": json.dumps(program), **hyperparameters}
        return train_job({"train": data, **channels}, code=code, hyperparameters=settings, **job)

    return run


@pytest.fixture(scope="session")
def losses_of_one_process(user_job: TrainJob) -> Any:
    """The losses of TRAINER in one process, with a tolerance for rounding."""
    return pytest.approx(losses(user_job({"train.py": TRAINER}, "train.py"), ranks=1), abs=2e-6)


def losses(ran: Ran, ranks: int) -> list[float]:
    """The losses that TRAINER prints; fails if another number of ranks took part."""
    assert ran.outcome.exit_code == 0, ran.log
    matches = [
        re.fullmatch(r"trained: ranks (\d), steps 4, losses (\S+) (\S+)", line) for line in ran.lines_of("algo-1")
    ]
    (match,) = filter(None, matches)
    assert int(match[1]) == ranks
    return [float(match[2]), float(match[3])]


ServeModel = Callable[[Path], Served]


@pytest.fixture
def serve_model(client: docker.DockerClient) -> Iterator[ServeModel]:
    """`serve_model(folder)`: a ready container of the inference image of the profile cpu."""
    started = []

    def start(model: Path) -> Served:
        container = client.containers.run(
            f"berth-serve:{pins.DEFAULT_PROFILE}",
            detach=True,
            volumes=[f"{model}:/opt/ml/model:ro"],
            ports={"8080/tcp": ("127.0.0.1", None)},
            labels={"berth.test": "1"},
        )
        started.append(container)
        served = Served(container)
        served.wait_until_ready()
        return served

    yield start
    for container in started:
        container.remove(force=True)


LoneHosts = Callable[..., AbstractContextManager[dict[str, Container]]]


@pytest.fixture
def lone_hosts(client: docker.DockerClient, tmp_path: Path) -> LoneHosts:
    """`with lone_hosts(data, hyperparameters, present=[…], hostname=…) as containers`: runs hosts during the block.

    present: the hosts to start; environment: host → variables.
    """

    @contextmanager
    def start(
        data: Mapping[str, Path],
        hyperparameters: Mapping[str, str],
        *,
        hosts: int = 2,
        present: list[str] | None = None,
        hostname: str | None = None,
        environment: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Iterator[dict[str, Container]]:
        names = opt_ml.host_names(hosts)

        def options(name: str) -> dict[str, Any]:
            config = opt_ml.HostConfig(name, names, "local", hyperparameters, data)
            return host_options(tmp_path / name, config, (environment or {}).get(name, {}), hostname)

        with started_hosts(client, IMAGE, names if present is None else present, options) as containers:
            yield containers

    return start
