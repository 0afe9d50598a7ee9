"""One job of an image on one host, from its files to how it ended."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from docker import DockerClient

from bench.jobs.containers import host_options
from berth.local import opt_ml

_LIMIT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class HostJob:
    """What a job is given. code: the source folder. config: further files of /opt/ml/input/config. memory: the
    container's limit, as Docker takes it.
    """

    hyperparameters: Mapping[str, str]
    code: Path | None = None
    channels: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    memory: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended: exit code, first line of the failure file, and its log."""

    code: int
    sentence: str
    log: str


def run(client: DockerClient, image: str, job: HostJob, scratch: Path, checkpoints: Path | None = None) -> End:
    """Run the job without a network, in a folder below `scratch`. checkpoints: a folder in place of the job's own."""
    root = Path(tempfile.mkdtemp(dir=scratch)) / "ml"
    channels = dict(job.channels)
    config = opt_ml.HostConfig("algo-1", ["algo-1"], "local", dict(job.hyperparameters), channels, code=job.code)
    options = host_options(root, config, job.environment)
    for name, text in job.config.items():
        (root / "input/config" / name).write_text(text)
    if checkpoints:
        there = f":{opt_ml.ROOT}/checkpoints:"
        own = [volume for volume in options["volumes"] if there not in volume]
        options["volumes"] = [*own, f"{checkpoints}{there}rw"]
    limits = {"mem_limit": job.memory, "memswap_limit": job.memory} if job.memory else {}
    container = client.containers.create(image, labels={"berth.test": "1"}, network_mode="none", **options, **limits)
    try:
        container.start()
        code = int(container.wait(timeout=_LIMIT_SECONDS)["StatusCode"])
        log = container.logs().decode(errors="replace")
    finally:
        container.remove(force=True, v=True)
    failure = root / "output/failure"
    sentence = failure.read_text(errors="replace").splitlines()[0] if failure.is_file() else ""
    return End(code, sentence, log)
