"""The kit on each Docker engine that users have: what works there and how long it takes, or what it says.

Usage: python -m bench.engines [ENGINE ...], or `make engines`; writes bench/results/DATE-engines.md. Wants root and
Debian's package archive; three quarters of an hour.

Each engine but this machine's own starts empty, from the base image alone. Both images of cpu are built, pushed to a
real registry and read back; a job of some steps trains, its model is served and asked; `clean` removes what was made.
Then the same image by hand: plain `docker build` and `docker push`, and bake. An engine that builds nothing gets the
images of this machine's own, so that the rest is seen; `clean` takes the kit's images from that one as well.
Ends with exit code 1 if a command failed without its sentence.
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
    """One engine. release: Debian's that it is of, empty for this machine's own; settings: of its daemon.json."""

    release: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    podman: bool = False


ENGINES = {
    "trixie": Kind("trixie"),
    "trixie-containerd": Kind("trixie", _CONTAINERD),
    "sid-containerd": Kind("sid", _CONTAINERD),
    "podman": Kind("trixie", podman=True),
    "here": Kind(),  # last, for `clean` removes what the others are given
}


@dataclass(frozen=True, slots=True)
class Place:
    """An engine that runs. environment: what commands need to reach it; by_hand: the same for Debian 13's client and
    buildx; folder: one that the engine sees.
    """

    client: docker.DockerClient
    environment: Mapping[str, str]
    by_hand: Mapping[str, str]
    folder: Path
    registry: registries.Registry


@dataclass
class Row:
    """One engine in the table: what it is, and what each step came to."""

    engine: str
    cells: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def command(environment: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    """A command in this checkout, with these variables."""
    return subprocess.run(
        words,
        cwd=pins.ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def said(done: "subprocess.CompletedProcess[str]") -> str:
    """The sentence of a command that failed, or its last line where it has none."""
    text = done.stderr + done.stdout
    sentences = re.findall(r"berth: error: (.*?)(?: The whole log: .*)?$", text, re.MULTILINE)
    return sentences[-1] if sentences else f"no sentence, code {done.returncode}: {text.strip().splitlines()[-1:]}"


def step(row: Row, place: Place, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command of build.py as a step, and notes its time or what it said."""
    began = time.monotonic()
    done = command(place.environment, sys.executable, "build.py", *words)
    took = time.monotonic() - began
    print(f"{row.engine}: {name}: code {done.returncode}, {took:.0f} s", file=sys.stderr)
    row.cells[name] = f"{took:.0f} s" if done.returncode == 0 else said(done)
    if done.returncode != 0 and "no sentence" in row.cells[name]:
        row.failed.append(name)
        print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
    return done


def media_type(place: Place, name: str, reference: str) -> str:
    """Of the manifest that the registry has, in a word."""
    url = f"{place.registry.url}/v2/{name}/manifests/{reference}"
    names = {manifests.DOCKER_MANIFEST: "Docker v2", manifests.OCI_MANIFEST: "OCI", manifests.OCI_INDEX: "OCI index"}
    asked = urllib.request.Request(url, headers={"Accept": ", ".join(manifests.MEDIA_TYPES)})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            found = str(answer.headers["Content-Type"])
    except urllib.error.HTTPError as error:
        return f"status {error.code}"
    return names.get(found, found)


def copy_image(place: Place, name: str) -> None:
    """From this machine's engine."""
    saved = subprocess.Popen([engine.find_client(), "save", name], stdout=subprocess.PIPE)
    with saved:
        place.client.images.load(saved.stdout)  # type: ignore[arg-type]  # a pipe is read in pieces


def measure(row: Row, place: Place, start: str) -> None:
    """All steps on one engine."""
    channels = small.write_channels(place.folder / "channels")
    copy_image(place, start)
    doctor = command(place.environment, sys.executable, "build.py", "doctor")
    found = re.findall(r"^ missing +(.*?)  +(.*)$", doctor.stdout, re.MULTILINE)
    row.cells["doctor: missing"] = "; ".join(f"{name.lower()}, {text.strip()}" for name, text in found) or "nothing"
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


def serve_and_ask(place: Place, model: Path) -> str:
    """The status of an answer of `run serve`, and how long it took until then."""
    began = time.monotonic()
    words = [sys.executable, "build.py", "run", "serve", "--model", str(model), "--port", str(PORT)]
    log = place.folder / "serve.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            words, cwd=pins.ROOT, env={**os.environ, **place.environment}, stdout=file, stderr=file
        )
    body = json.dumps({"question": "Who?", "context": "It was Ada."}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/invocations", body, {"Content-Type": "application/json"})
    try:
        while server.poll() is None and time.monotonic() - began < 120:
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return f"{answer.status}, {time.monotonic() - began:.0f} s"
            except OSError:
                time.sleep(0.5)
        return f"no answer: {log.read_text()[-300:]}"
    finally:
        server.terminate()
        server.wait(60)


def by_hand(row: Row, place: Place, start: str) -> None:
    """The inference image by plain `docker build` and `docker push`, and by bake: steps from the cache, and what the
    registry gets.
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
            done = command(place.by_hand, *words)
            text += done.stdout + done.stderr
            if done.returncode != 0:
                row.cells[way] = f"refused: {text.strip().splitlines()[-1] if text.strip() else done.returncode}"
                break
        else:
            cached = len(re.findall(r"^#\d+ CACHED", text, re.MULTILINE))
            sent = media_type(place, "by-hand", "plain" if way.startswith("docker build") else "bake")
            row.cells[way] = f"{sent}, {cached} steps cached, {time.monotonic() - began:.0f} s"
        print(f"{row.engine}: {way}: {row.cells[way]}", file=sys.stderr)
    for image in place.client.images.list(name):
        place.client.images.remove(str(image.id), force=True)


@contextmanager
def started(kind: Kind, roots: Path, folder: Path) -> Iterator[Place]:
    """The engine of a kind, with a registry on this machine's loopback. roots: where root file systems are kept."""
    with ExitStack() as stack:
        (folder / "registry").mkdir(parents=True)
        registry = stack.enter_context(registries.running(registries.Registry(folder / "registry")))
        newest = root_of(roots, "trixie", debian_engine.DOCKER)
        client = debian_engine.client_variables(newest, folder / "client")
        seen = folder / "engine"
        if not kind.release:
            (seen / "tmp").mkdir(parents=True)
            ours = {"BERTH_DIST": str(seen)}
            yield Place(engine.connect(), ours, {**client, **ours}, seen, registry)
            return
        root = root_of(roots, kind.release, debian_engine.PODMAN if kind.podman else debian_engine.DOCKER)
        run = debian_engine.running_podman(root, seen, registry.host) if kind.podman else None
        found = stack.enter_context(run or debian_engine.running(root, seen, kind.settings))
        (seen / "tmp").mkdir()
        more = {"DOCKER_HOST": found.address, "TMPDIR": str(seen / "tmp"), "BERTH_DIST": str(seen)}
        yield Place(
            found.client, {**(client if kind.podman else found.environment), **more}, {**client, **more}, seen, registry
        )


def root_of(roots: Path, release: str, packages: str) -> Path:
    """A root file system with these packages, made once."""
    folder = roots / str(zlib.crc32(packages.encode()))
    root = folder / release
    return root if root.is_dir() else debian_engine.make_root(folder, release, packages)


def describe(place: Place) -> str:
    """The engine's name, version and store."""
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
                row = Row(describe(place))
                measure(row, place, start)
                rows.append(row)
    columns = list(dict.fromkeys(name for row in rows for name in row.cells))
    table = [report.row(column, *(row.cells.get(column, "–") for row in rows)) for column in columns]
    setting = program.setting("engines", words, engine.connect())
    print(
        report.page("The kit on Docker's engines", [setting], *report.table(["", *(row.engine for row in rows)], table))
    )
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    program.end_with(main)
