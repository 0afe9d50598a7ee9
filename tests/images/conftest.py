"""Fixtures: containers of the built images for testinfra, and builds of the tests."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import certifi
import docker
import pytest
import testinfra
from docker.models.images import Image
from filelock import FileLock
from rich.console import Console
from testinfra.host import Host

from berth.common import engine
from berth.common.errors import UserError
from berth.images.build import docker_build
from berth.images.build.base import VARIABLE, local_base
from berth.images.build.buildkit_log import Progress
from berth.images.build.plan import Provided, Revision, build_plan
from berth.images.build.prepare import link_wheels
from berth.images.network import build_network
from berth.images.pins import pins, pins_file
from berth.images.scratch import SECRETS, scratch_folder
from berth.local import demo

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
# An image that a user built FROM one of berth's, to test instead of berth's: `build.py test --image`.
NAMED, NAMED_KIT = os.environ.get("BERTH_IMAGE"), os.environ.get("BERTH_IMAGE_KIT")
IMAGES = (NAMED_KIT,) if NAMED and NAMED_KIT else pins_file.load().profile(PROFILE).images
# The tests in cuda/ are for images with CUDA; builds with doubles use the profile cpu.
collect_ignore = ["files"] if pins_file.load().profile(PROFILE).cuda else ["cuda"]


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    return engine.connect()


@pytest.fixture(scope="session")
def profile() -> pins.Profile:
    return pins_file.load().profile(PROFILE)


def image_under_test(client: docker.DockerClient, name: str) -> Image:
    """The image under test: the one built last, or the user's. Missing is an error: a skip would hide that."""
    if NAMED and name == NAMED_KIT:
        return engine.find_image(client, NAMED)
    try:
        return client.images.get(f"berth-{name}:{PROFILE}")
    except docker.errors.ImageNotFound:
        raise UserError(f"berth-{name}:{PROFILE} is not built: run `make images` first.") from None


def running(client: docker.DockerClient, name: str) -> Iterator[Host]:
    """A sleeping container without network, for testinfra."""
    container = client.containers.run(
        image_under_test(client, name).id,
        ["3600"],
        entrypoint=["sleep"],
        network_mode="none",
        detach=True,
        labels={"berth.test": "1"},
    )
    try:
        yield testinfra.get_host(f"docker://{container.id}")
    finally:
        container.remove(force=True)


@pytest.fixture(scope="session")
def train(client: docker.DockerClient) -> Iterator[Host]:
    yield from running(client, "train")


@pytest.fixture(scope="session")
def serve(client: docker.DockerClient) -> Iterator[Host]:
    yield from running(client, "serve")


@pytest.fixture(params=IMAGES, scope="session")
def either(request: pytest.FixtureRequest) -> Host:
    """Each image in turn."""
    host: Host = request.getfixturevalue(request.param)
    return host


@pytest.fixture(params=IMAGES, scope="session")
def image(request: pytest.FixtureRequest, client: docker.DockerClient) -> Image:
    """Each image in turn, as the engine describes it."""
    return image_under_test(client, request.param)


@pytest.fixture(
    params=[*(pytest.param(each, marks=pytest.mark.nightly) for each in IMAGES[:-1]), IMAGES[-1]], scope="session"
)
def slow_image(request: pytest.FixtureRequest, client: docker.DockerClient) -> Image:
    """Like `image`, for long tests: only nightly runs use every image, other runs use the last one."""
    return image_under_test(client, request.param)


MadeOnce = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """`made_once("model", make)` is a folder that `make(folder)` fills once for all processes of a run."""
    run = tmp_path_factory.getbasetemp()
    run = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run

    def folder_of(name: str, make: Callable[[Path], None]) -> Path:
        folder = run / f"once-{name}"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                folder.mkdir()
                try:
                    make(folder)
                except BaseException:
                    shutil.rmtree(folder)
                    raise
        return folder

    return folder_of


@dataclass(frozen=True, slots=True)
class Demo:
    """A finished demo: its exit code, what it printed, and its folder."""

    code: int
    printed: str
    out: Path


@pytest.fixture(scope="session")
def small_demo(profile: pins.Profile, made_once: MadeOnce) -> Demo:
    """The demo with 4 steps and 24 questions."""

    def make(folder: Path) -> None:
        printed = io.StringIO()
        short = {"max_steps": "4", "eval_steps": "2", "logging_steps": "1", "max_eval_samples": "24"}
        images = [f"berth-{image}:{profile.name}" for image in pins.IMAGES]
        code = demo.run_demo(*images, folder / "out", Console(file=printed, width=160), hyperparameters=short)
        (folder / "ended.json").write_text(json.dumps([code, printed.getvalue()]))

    folder = made_once("demo", make)
    return Demo(*json.loads((folder / "ended.json").read_text()), folder / "out")


CommandLine = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def command_line() -> CommandLine:
    """`command_line("uri", "train", DOCKER_HOST=…)` runs build.py with these words and additional variables."""

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(pins.ROOT / "build.py"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **variables})

    return run


def copy_kit(copy: Path) -> Path:
    """Copies the files of this checkout to `copy`, links local wheels there, and returns the folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=pins.ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (pins.ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(pins.ROOT / name, copy / name, follow_symlinks=False)
    link_wheels(build_network.gather(os.environ), pins_file.load().profile(PROFILE), copy)
    return copy


@pytest.fixture
def kit_copy(tmp_path: Path) -> Path:
    """A copy of this checkout that the test may edit."""
    return copy_kit(tmp_path / "kit")


def build_image(
    tag: str,
    image: str,
    root: Path,
    *,
    base: str | None = None,
    settings: build_network.Network | None = None,
    target: str | None = None,
    profile: pins.Profile | None = None,
) -> docker_build.Built:
    """Builds `root` under a tag.

    base: a reference; default: BERTH_BASE_IMAGE, else the pinned base. settings: default: this machine's. target: the
    stage to build. profile: default: the one under test, without the parts that are files.
    """
    all_pins = pins_file.load(root / "docker" / "pins.toml")
    network = settings or build_network.gather(os.environ)
    base_image = local_base(engine.connect(), all_pins, base or os.environ.get(VARIABLE))
    assert base_image is not None, "the base is not on the engine"
    with scratch_folder(SECRETS, pins.CACHE) as folder:
        plan = build_plan(
            all_pins,
            profile or all_pins.profile(PROFILE).without(pins.FILE_PARTS["train"]),
            image,
            Revision("test"),
            Provided(base_image, network.write_secrets(folder), network.proxies),
            root,
        )
        options = (*plan.options, *(("--target", target) if target else ()))
        return docker_build.run_build(
            replace(plan, options=options, tags=(tag,)), engine.find_client(), lambda *_: None
        )


Build = Callable[..., docker_build.Built]


@pytest.fixture
def build_as(client: docker.DockerClient) -> Iterator[Build]:
    """`build_as(tag, image, root, base=…, settings=…)` calls `build_image`; its tags are removed after the test."""
    made: list[str] = []

    def run(tag: str, *arguments: Any, **options: Any) -> docker_build.Built:
        made.append(tag)
        return build_image(tag, *arguments, **options)

    yield run
    for tag in made:
        if client.images.list(tag):
            client.images.remove(tag, force=True)


CANARY = "berth-canary-7f3a91"
PUBLIC_HOSTS = "deb.debian.org,security.debian.org,pypi.org,files.pythonhosted.org,download.pytorch.org,localhost"


@pytest.fixture(params=[pytest.param("train", marks=pytest.mark.nightly), "serve"], scope="session")
def canary_image(
    request: pytest.FixtureRequest, client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An image built without the build cache, with a canary in each secret, proxy and AWS variable.

    It is built once for all tests, because it takes minutes. Its label berth.kit is train or serve.
    """
    folder = tmp_path_factory.mktemp("canary")
    checkout = copy_kit(folder / "kit")
    network = build_network.gather(os.environ)
    ca = folder / "ca.pem"
    ca.write_text(f"# {CANARY}-ca\n" + (network.ca.read_text() if network.ca else Path(certifi.where()).read_text()))
    planted = replace(
        network,
        ca=ca,
        index=replace(
            network.index, url=with_password(network.index.url or "https://pypi.org/simple", f"{CANARY}-pip")
        ),
        apt=network.apt + f'Acquire::http::User-Agent "{CANARY}-apt";\n',
        apt_auth=network.apt_auth + f"machine canary.invalid login x password {CANARY}-auth\n",
        proxies=("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    )
    # BuildKit's cache ignores secrets. Changed layer scripts make every step new; `--no-cache` would replace the
    # developer's cached layers.
    for script in (checkout / "docker" / "layers").glob("*.sh"):
        with script.open("a") as file:
            file.write(f"# {token_hex(8)}\n")
    hosts = ",".join(filter(None, [PUBLIC_HOSTS, os.environ.get("NO_PROXY"), os.environ.get("no_proxy")]))
    kept = set(cache_records(client))
    tag = f"berth-test:canary-{request.param}"
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "HTTP_PROXY": f"http://x:{CANARY}-proxy@proxy.invalid:3128",
            "HTTPS_PROXY": f"http://x:{CANARY}-proxy@proxy.invalid:3128",
            "NO_PROXY": hosts,
            "AWS_SECRET_ACCESS_KEY": f"{CANARY}-aws",
            "AWS_SESSION_TOKEN": f"{CANARY}-token",
        }.items():
            environment.setenv(name, value)
        made = build_image(tag, request.param, checkout, settings=planted)
    try:
        log = made.log.read_text()
        progress = Progress()
        for line in log.splitlines():
            progress.feed(line)
        cached = [step.name for step in progress.layers if step.cached and step.instruction.startswith("RUN")]
        assert cached == [], "a step came from the cache, perhaps without the canaries"
        # The log must not contain the proxy's password either.
        assert CANARY not in log
        yield tag
    finally:
        client.images.remove(tag, force=True)
        for record in cache_records(client):
            if record not in kept:
                client.api.prune_builds(filters={"id": record}, all=True)


def cache_records(client: docker.DockerClient) -> list[str]:
    """The IDs of BuildKit's cache records, newest first: a record can be removed only after those built on it."""
    records = sorted(client.api.df()["BuildCache"], key=lambda record: record["CreatedAt"], reverse=True)
    return [record["ID"] for record in records]


def with_password(url: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://canary:{password}@{rest.rpartition('@')[2]}"


Derive = Callable[..., str]


@pytest.fixture(scope="session")
def derive(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Derive]:
    """`derive("einops==0.8.1", "ENV A=b")` builds an image FROM berth-train with a pip install and further lines.

    `files` are in /tmp/files while pip runs. pip's settings and the CA of this network are passed as secrets. The
    images are removed at the end.
    """
    made: list[str] = []

    def build_from_ours(install: str, *lines: str, files: Sequence[Path] = ()) -> str:
        folder = tmp_path_factory.mktemp("derived")
        (folder / "files").mkdir()
        for file in files:
            shutil.copy(file, folder / "files")
        pip = f"pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore {install}"
        dockerfile = [
            f"FROM berth-train:{PROFILE}",
            "RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \\",
            "    --mount=type=bind,source=files,target=/tmp/files \\",
            "    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \\",
            "    if [ -f /run/secrets/pip ]; then export PIP_CONFIG_FILE=/run/secrets/pip; fi; \\",
            f"    {pip}",
            *lines,
        ]
        (folder / "Dockerfile").write_text("\n".join(dockerfile) + "\n")
        network = build_network.gather(os.environ)
        tag = f"berth-test:derived-{token_hex(4)}"
        command = [str(engine.find_client()), "build", "--network", "host", "--tag", tag]
        for name, path in network.write_secrets(tmp_path_factory.mktemp("secrets")).items():
            command += ["--secret", f"id={name},src={path}"]
        for name in network.proxies:
            command += ["--build-arg", name]
        finished = subprocess.run(
            [*command, str(folder)],
            env=engine.client_environment(os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert finished.returncode == 0, finished.stdout
        made.append(tag)
        return tag

    yield build_from_ours
    for tag in made:
        client.images.remove(tag, force=True)
