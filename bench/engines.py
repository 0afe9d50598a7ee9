"""berth on each Docker engine that users have: which commands work, how long they take, or their error.

Usage: python -m bench.engines [ENGINE ...] > bench/results/DATE-engines.md, or `make engines`. Needs root and Debian's
package archive; takes 45 minutes.

Each engine except this machine's starts with the base image only. Both images of cpu are built, pushed to a real
registry and read back; a job of some steps trains, its model is served and answers a request; `clean` removes
everything. Then the inference image is built and pushed by hand: with `docker build` and `docker push`, and with bake.
An engine that can't build gets the images of this machine, so that the other commands can run. `clean` removes berth's
images from this machine's engine as well. Exit code 1 if a command failed without berth's one-line error.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import docker

from bench import program, report
from bench.jobs import small
from bench.serving.load import LOST
from bench.serving.request import ask
from berth.common import engine
from berth.ecr.registry import manifest as manifests
from berth.images.build import base
from berth.images.pins import pins, pins_file
from tests.registry import debian_engine, registries

PORT = 18080
_CONTAINERD = {"features": {"containerd-snapshotter": True}}
_SHORT = {"max_steps": "2", "save_strategy": "no"}


@dataclass(frozen=True, slots=True)
class Kind:
    """One engine. release: the Debian release, empty for this machine's engine; settings: its daemon.json."""

    release: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    podman: bool = False


ENGINES = {
    "trixie": Kind("trixie"),
    "trixie-containerd": Kind("trixie", _CONTAINERD),
    "sid-containerd": Kind("sid", _CONTAINERD),
    "podman": Kind("trixie", podman=True),
    "here": Kind(),  # last, because `clean` removes the images that the others get
}


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A running engine. environment: the variables with which commands reach it; by_hand: those for Debian 13's client
    and buildx; folder: a folder that the engine can mount.
    """

    client: docker.DockerClient
    environment: Mapping[str, str]
    by_hand: Mapping[str, str]
    folder: Path
    registry: registries.Registry


@dataclass
class Column:
    """The column of one engine in the table. cells: step → result; failed: the steps without a one-line error."""

    engine: str
    cells: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def command(environment: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in this checkout with additional variables."""
    return subprocess.run(
        words,
        cwd=pins.ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def error_of(process: "subprocess.CompletedProcess[str]") -> str:
    """The one-line error of a failed command, or its last line of output."""
    text = process.stderr + process.stdout
    sentences = re.findall(r"berth: error: (.*?)(?: The whole log: .*)?$", text, re.MULTILINE)
    return sentences[-1] if sentences else f"no sentence, code {process.returncode}: {text.strip().splitlines()[-1:]}"


def step(row: Column, place: RunningEngine, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of build.py as a step, and record its time or its error."""
    began = time.monotonic()
    process = command(place.environment, sys.executable, "build.py", *words)
    took = time.monotonic() - began
    print(f"{row.engine}: {name}: code {process.returncode}, {took:.0f} s", file=sys.stderr)
    row.cells[name] = f"{took:.0f} s" if process.returncode == 0 else error_of(process)
    if process.returncode != 0 and "no sentence" in row.cells[name]:
        row.failed.append(name)
        print(process.stdout[-3000:], process.stderr[-3000:], file=sys.stderr)
    return process


def media_type(place: RunningEngine, name: str, reference: str) -> str:
    """The kind of the manifest in the registry."""
    url = f"{place.registry.url}/v2/{name}/manifests/{reference}"
    names = {manifests.DOCKER_MANIFEST: "Docker v2", manifests.OCI_MANIFEST: "OCI", manifests.OCI_INDEX: "OCI index"}
    request = urllib.request.Request(url, headers={"Accept": ", ".join(manifests.MEDIA_TYPES)})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            kind = str(answer.headers["Content-Type"])
    except urllib.error.HTTPError as error:
        return f"status {error.code}"
    return names.get(kind, kind)


def copy_image(place: RunningEngine, name: str) -> None:
    """Copy an image from this machine's engine."""
    saved = subprocess.Popen([engine.find_client(), "save", name], stdout=subprocess.PIPE)
    with saved:
        place.client.images.load(saved.stdout)  # type: ignore[arg-type]  # a pipe is read in parts


def measure(row: Column, place: RunningEngine, start: str) -> None:
    """Run all steps on one engine."""
    channels = small.write_channels(place.folder / "channels")
    copy_image(place, start)
    doctor = command(place.environment, sys.executable, "build.py", "doctor")
    missing = re.findall(r"^ missing +(.*?)  +(.*)$", doctor.stdout, re.MULTILINE)
    row.cells["doctor: missing"] = "; ".join(f"{name.lower()}, {text.strip()}" for name, text in missing) or "nothing"
    built = step(row, place, "build", "build", "all")
    if built.returncode != 0:
        for image in pins.IMAGES:
            copy_image(place, f"berth-{image}:cpu")
    pushed = step(row, place, "push", "push", "all", "--registry", place.registry.host, "--no-test", "--json")
    if pushed.returncode == 0:
        entries = json.loads(pushed.stdout)
        types = {media_type(place, f"berth-{entry['image']}", entry["digest"]) for entry in entries}
        row.cells["in the registry"] = (
            f"{', '.join(sorted(types))}, {sum(e['bytes_sent'] for e in entries) / 1e6:.0f} MB"
        )
    sized = step(row, place, "size", "size", "all", "--json")
    if sized.returncode == 0:
        row.cells["size"] = ", ".join(
            f"{sum(layer['compressed'] for layer in each['layers']):,}" for each in json.loads(sized.stdout)
        )
    output = place.folder / "out"
    words = ["--data", str(channels["train"]), "--model", str(channels["model"]), "--output", str(output)]
    words += [
        word for name, value in {**small.hyperparameters(), **_SHORT}.items() for word in ("-p", f"{name}={value}")
    ]
    trained = step(row, place, "run train", "run", "train", *words)
    if trained.returncode == 0:
        row.cells["run serve"] = serve_and_ask(place, output / "model.tar.gz")
    by_hand(row, place, start)
    step(row, place, "clean", "clean", "--yes")
    left = [tag for image in place.client.images.list() for tag in image.tags if "berth-" in tag and tag != start]
    left += [str(each.name) for each in place.client.containers.list(all=True)]
    row.cells["clean"] += f"; left: {', '.join(left)}" if left else ""


def serve_and_ask(place: RunningEngine, model: Path) -> str:
    """Start `run serve` and send a request; the status of the answer and the seconds until then."""
    began = time.monotonic()
    words = [sys.executable, "build.py", "run", "serve", "--model", str(model), "--port", str(PORT)]
    log = place.folder / "serve.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            words, cwd=pins.ROOT, env={**os.environ, **place.environment}, stdout=file, stderr=file
        )
    body = json.dumps({"question": "Who?", "context": "It was Ada."}).encode()
    try:
        while server.poll() is None and time.monotonic() - began < 120:
            status, _ = ask(PORT, "POST", "/invocations", body, within=10.0)
            if status != LOST:
                return f"{status}, {time.monotonic() - began:.0f} s"
            time.sleep(0.5)
        return f"no answer: {log.read_text()[-300:]}"
    finally:
        server.terminate()
        server.wait(60)


def by_hand(row: Column, place: RunningEngine, start: str) -> None:
    """Build and push the inference image with `docker build` and `docker push`, and with bake; record the number of
    cached steps and the kind of manifest.
    """
    name = f"{place.registry.host}/by-hand"
    arguments = ["--build-arg", "PROFILE=cpu", "--build-arg", f"BASE_IMAGE={start}"]
    plain = ["docker", "build", "--progress=plain", "-f", "docker/Dockerfile", "--target", "serve", *arguments]
    bake = ["docker", "buildx", "bake", "--progress=plain", "-f", "docker/bake.json", "serve-cpu", "--push"]
    bake += [f"--set=*.tags={name}:bake", f"--set=*.args.BASE_IMAGE={start}"]
    ways = {
        "docker build, docker push": [[*plain, "-t", f"{name}:plain", "."], ["docker", "push", f"{name}:plain"]],
        "bake --push": [bake],
    }
    for way, commands in ways.items():
        began = time.monotonic()
        text = ""
        for words in commands:
            process = command(place.by_hand, *words)
            text += process.stdout + process.stderr
            if process.returncode != 0:
                row.cells[way] = f"failed: {text.strip().splitlines()[-1] if text.strip() else process.returncode}"
                break
        else:
            cached = len(re.findall(r"^#\d+ CACHED", text, re.MULTILINE))
            sent = media_type(place, "by-hand", "plain" if way.startswith("docker build") else "bake")
            row.cells[way] = f"{sent}, {cached} steps cached, {time.monotonic() - began:.0f} s"
        print(f"{row.engine}: {way}: {row.cells[way]}", file=sys.stderr)
    for image in place.client.images.list(name):
        place.client.images.remove(str(image.id), force=True)


@contextmanager
def started(kind: Kind, roots: Path, folder: Path) -> Iterator[RunningEngine]:
    """Start an engine, and a registry on this machine's loopback. roots: the folder for root file systems."""
    with ExitStack() as stack:
        (folder / "registry").mkdir(parents=True)
        registry = stack.enter_context(registries.running(registries.Registry(folder / "registry")))
        newest = root_of(roots, "trixie", debian_engine.DOCKER)
        client = debian_engine.client_variables(newest, folder / "client")
        shared = folder / "engine"
        if not kind.release:
            (shared / "tmp").mkdir(parents=True)
            ours = {"BERTH_DIST": str(shared)}
            yield RunningEngine(engine.connect(), ours, {**client, **ours}, shared, registry)
            return
        root = root_of(roots, kind.release, debian_engine.PODMAN if kind.podman else debian_engine.DOCKER)
        run = debian_engine.running_podman(root, shared, registry.host) if kind.podman else None
        running = stack.enter_context(run or debian_engine.running(root, shared, kind.settings))
        (shared / "tmp").mkdir()
        reach = {"DOCKER_HOST": running.address, "TMPDIR": str(shared / "tmp"), "BERTH_DIST": str(shared)}
        yield RunningEngine(
            running.client,
            {**(client if kind.podman else running.environment), **reach},
            {**client, **reach},
            shared,
            registry,
        )


def root_of(roots: Path, release: str, packages: str) -> Path:
    """A root file system with these packages; made once."""
    folder = roots / str(zlib.crc32(packages.encode()))
    root = folder / release
    return root if root.is_dir() else debian_engine.make_root(folder, release, packages)


def describe(place: RunningEngine) -> str:
    """The engine's name, version and image store."""
    version = place.client.version()
    if engine.is_podman(version):
        return f"podman {version['Version']}"
    return f"{version['Version']}, {engine.image_store(place.client.info())} store"


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("engines", __doc__)
    parser.add_argument("engines", nargs="*", choices=[*ENGINES, []], metavar="ENGINE", help=", ".join(ENGINES))
    names = parser.parse_args(words).engines or list(ENGINES)
    start = os.environ.get(base.VARIABLE) or pins_file.load().base_image
    engine.find_image(engine.connect(), start)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            with started(ENGINES[name], Path(scratch, "roots"), Path(scratch, name)) as place:
                row = Column(describe(place))
                measure(row, place, start)
                rows.append(row)
    columns = list(dict.fromkeys(name for row in rows for name in row.cells))
    table = [report.row(column, *(row.cells.get(column, "–") for row in rows)) for column in columns]
    setting = program.setting("engines", words, engine.connect())
    print(
        report.page("berth on Docker's engines", [setting], *report.table(["", *(row.engine for row in rows)], table))
    )
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    program.end_with(main)
