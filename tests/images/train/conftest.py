"""Real jobs in real containers, for the tests of the training image.

`train_job` runs a job as `build.py run train` does and keeps each line with the second at which it came; `lone_hosts`
starts containers one by one, for what a whole job of the kit's can't be: hosts of one name, or a host that never comes.
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

_ROW = pins_file.load().profile(os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE))
# Whether the images have a transformers before 5, for which run_qa is none.
OLDER = not _ROW.runs_kit
# Scripts of early 2023 are for the versions of that set alone: another old one may have no load_metric.
collect_ignore = [] if _ROW.software.name == "hf4" else ["test_hf4.py"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What an older transformers can't do is not asked of it."""
    left_out = [item for item in items if OLDER and item.get_closest_marker("transformers5")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


# What libraries and we write when something is wrong, in whatever shape.
SUSPICIOUS = re.compile(
    r"\b(WARNING|WARN|ERROR|CRITICAL|FATAL)\b|[A-Z]\w+Warning\b|^\W*(warning|error)\b|: (warning|error):|Traceback"
    r"|^\[[WEF]\d* |^[WEF]\d{4} ",
    re.MULTILINE,
)


@pytest.fixture(scope="session")
def unexpected_lines() -> Callable[..., list[str]]:
    """`unexpected_lines(log, *expected)`: lines that look like a warning or an error and match no expected pattern."""

    def find(log: str, *expected: str) -> list[str]:
        suspicious = [line for line in log.splitlines() if SUSPICIOUS.search(line.partition(" | ")[2] or line)]
        return [line for line in suspicious if not any(re.search(pattern, line) for pattern in expected)]

    return find


@dataclass(frozen=True)
class Ran:
    """A job that has ended: its lines with the time at which each came, and when each host's container ended."""

    outcome: TrainOutcome
    lines: list[tuple[float, str]]
    ended: Mapping[str, float] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def of(self, host: str) -> list[str]:
        """One host's lines, without its name."""
        return [line.removeprefix(f"{host} | ") for _, line in self.lines if line.startswith(f"{host} | ")]

    def when(self, pattern: str) -> float:
        """The time of the last line that matches; the test fails if none does."""
        times = [at for at, line in self.lines if re.search(pattern, line)]
        assert times, f"no line matches {pattern}:\n{self.log}"
        return times[-1]

    def sentences(self) -> dict[str, str]:
        """The first line of each host's failure file."""
        return {host: (text.splitlines() or [""])[0] for host, text in self.outcome.failures.items()}


def deaths(client: docker.DockerClient, since: float) -> dict[str, float]:
    """When the containers of this process' runs ended, by host, as the engine noted it (seconds since the epoch)."""
    mine = {"type": "container", "event": "die", "label": f"{labels.PID}={os.getpid()}"}
    events = client.events(since=int(since), until=int(time.time()) + 1, filters=mine, decode=True)
    ended = {}
    for event in events:
        if event["timeNano"] / 1e9 >= since:
            name = event["Actor"]["Attributes"]["name"]
            ended[re.sub(r"^berth-\d+-\d+-[0-9a-f]+-", "", name)] = event["timeNano"] / 1e9
    return ended


@pytest.fixture(scope="session")
def tiny_model(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one small layer with random weights and the demo's tokenizer: for all that needs no good answers."""
    return write_model(tmp_path_factory.mktemp("tiny-model"), pretrained)


Channels = Callable[..., dict[str, Path]]


@pytest.fixture
def channels(tmp_path: Path) -> Channels:
    """`channels(train=…, validation=…)` writes each value, a text or an object for JSON, as that channel's one file."""

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
    """Runs a job to its end: image, and the fields of TrainingJob. Prints the whole log, for a test that fails."""

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
    """Runs a user's program, `program` out of `files` (name → text or bytes), on data that it need not look at."""
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
        told = {"sagemaker_program": json.dumps(program), **hyperparameters}
        return train_job({"train": data, **channels}, code=code, hyperparameters=told, **job)

    return run


@pytest.fixture(scope="session")
def alone(user_job: TrainJob) -> Any:
    """The losses of TRAINER in one process, within what rounding may change of them."""
    return pytest.approx(losses(user_job({"train.py": TRAINER}, "train.py"), ranks=1), abs=2e-6)


def losses(ran: Ran, ranks: int) -> list[float]:
    """Those that TRAINER tells, of so many ranks."""
    assert ran.outcome.exit_code == 0, ran.log
    said = [re.fullmatch(r"trained: ranks (\d), steps 4, losses (\S+) (\S+)", line) for line in ran.of("algo-1")]
    (found,) = filter(None, said)
    assert int(found[1]) == ranks
    return [float(found[2]), float(found[3])]


ServeModel = Callable[[Path], Served]


@pytest.fixture
def serve_model(client: docker.DockerClient) -> Iterator[ServeModel]:
    """`serve_model(folder)`: a container of the inference image of the profile cpu, ready."""
    made = []

    def start(model: Path) -> Served:
        container = client.containers.run(
            f"berth-serve:{pins.DEFAULT_PROFILE}",
            detach=True,
            volumes=[f"{model}:/opt/ml/model:ro"],
            ports={"8080/tcp": ("127.0.0.1", None)},
            labels={"berth.test": "1"},
        )
        made.append(container)
        served = Served(container)
        served.wait_until_ready()
        return served

    yield start
    for container in made:
        container.remove(force=True)


LoneHosts = Callable[..., AbstractContextManager[dict[str, Container]]]


@pytest.fixture
def lone_hosts(client: docker.DockerClient, tmp_path: Path) -> LoneHosts:
    """`with lone_hosts(data, hyperparameters, present=[…], hostname=…) as containers`: started, then removed.

    `environment` has the variables of each host, by its name.
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


FAULTS = pytest.StashKey[list[str]]()


@pytest.fixture
def fault_row(request: pytest.FixtureRequest) -> Callable[[str, str, int, float], None]:
    """Notes what was done to a job, what it said, its exit code and the seconds until its last host had ended."""

    def note(done: str, said: str, code: int, seconds: float) -> None:
        rows = request.config.stash.setdefault(FAULTS, [])
        rows.append(f"{done} | {said} | {code} | {seconds:.1f}")

    return note


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table of faults, at the end of the tests that made them."""
    if rows := config.stash.get(FAULTS, []):
        terminalreporter.section(
            "faults: what was done | what the job said | exit code | seconds to the last host's end"
        )
        for row in rows:
            terminalreporter.line(row)
