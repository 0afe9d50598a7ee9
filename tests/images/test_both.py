"""Both images: labels, entrypoint, pinned versions, no unneeded files, size."""

import re
from importlib.metadata import version as installed_version

import docker
import pytest
from docker.models.images import Image
from testinfra.host import Host

from berth.images.inspect.size import image_size
from berth.images.locks.locks import LOCKS, image_locks
from berth.images.pins import pins


def name_of(image: Image) -> str:
    name: str = image.labels["berth.kit"]
    return name


def output(host: Host, command: str) -> str:
    """The output of a command, which must succeed within two minutes."""
    text: str = host.check_output(f"timeout 120 {command}")
    return text


def shell_output(client: docker.DockerClient, image: Image, script: str) -> str:
    """The output of a shell script in a fresh container."""
    command = ["120", "bash", "-c", script]
    printed = client.containers.run(image.id, command, entrypoint=["timeout"], network_mode="none", remove=True)
    return str(printed.decode())


@pytest.mark.kits_own
def test_platform_and_labels(image: Image, profile: pins.Profile) -> None:
    assert (image.attrs["Os"], image.attrs["Architecture"]) == ("linux", "amd64")
    labels = image.labels
    assert labels["berth.profile"] == profile.name
    assert labels["berth.software"] == profile.software.name
    assert labels["berth.torch"] == profile.torch
    assert labels["berth.transformers"] == profile.packages["transformers"]
    assert labels.get("berth.openvino", pins.NONE) == profile.openvino(name_of(image))
    assert labels["org.opencontainers.image.version"] == pins.version() == installed_version("berth")
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?|none", labels["org.opencontainers.image.revision"])
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", labels["org.opencontainers.image.base.digest"])
    # SageMaker accepts at most 256 characters in a label.
    assert all(len(value) <= 256 for value in labels.values())


def test_entrypoint_and_default_command(image: Image) -> None:
    name = name_of(image)
    assert image.attrs["Config"]["Entrypoint"] == [name]
    assert image.attrs["Config"]["Cmd"] == [name]
    assert image.attrs["Config"]["User"] == ""


@pytest.mark.kits_own
def test_tags(image: Image, profile: pins.Profile) -> None:
    name, revision = name_of(image), image.labels["org.opencontainers.image.revision"]
    assert f"berth-{name}:{profile.name}" in image.tags
    assert f"berth-{name}:build-{pins.version()}-{profile.name}-{revision}" in image.tags


def test_command_on_path_is_berths(image: Image, client: docker.DockerClient) -> None:
    """sagemaker-training also installs a `train`; berth's must be first on PATH."""
    name = name_of(image)
    script = client.containers.run(
        image.id, ["-c", f"cat $(command -v {name})"], entrypoint=["bash"], network_mode="none", remove=True
    ).decode()
    ours = {"train": "berth.train.command", "serve": "berth.serve.entry"}[name]
    assert f"from {ours} import main" in script
    assert script.startswith("#!/opt/berth/bin/python")


def test_command_of_the_other_image_is_refused(image: Image, client: docker.DockerClient) -> None:
    other = {"train": "serve", "serve": "train"}[name_of(image)]
    container = client.containers.run(image.id, [other], network_mode="none", detach=True)
    try:
        assert container.wait(timeout=60)["StatusCode"] != 0
        printed = container.logs().decode()
    finally:
        container.remove(force=True)
    assert re.search(r"this is the (training|inference) image", printed, flags=re.IGNORECASE), printed
    assert "Traceback" not in printed


def test_any_other_command_is_executed(image: Image, client: docker.DockerClient) -> None:
    printed = client.containers.run(image.id, ["python", "-c", "print(6 * 7)"], network_mode="none", remove=True)
    assert printed.decode() == "42\n"


def test_berths_python_is_first_on_path(either: Host) -> None:
    assert output(either, "bash -c 'command -v python python3'") == "/opt/berth/bin/python\n/opt/berth/bin/python3"
    assert output(either, "python --version").startswith("Python 3.11.")


@pytest.mark.kits_own
def test_installed_packages_are_the_locked_ones(
    image: Image, client: docker.DockerClient, profile: pins.Profile
) -> None:
    """Versions are read in the image, so that an ignored pin is noticed."""
    name = name_of(image)
    listing = (
        "from importlib.metadata import distributions as d\n"
        "for x in d(): print(x.name.lower().replace('_', '-').replace('.', '-'), x.version)"
    )
    printed = client.containers.run(image.id, ["python", "-c", listing], network_mode="none", remove=True).decode()
    installed = dict(line.split() for line in printed.splitlines())
    locked: dict[str, str] = {"berth": pins.version()}
    for path in image_locks(profile, name):
        locked |= dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (LOCKS / path).read_text(), flags=re.MULTILINE))
    assert installed == locked


@pytest.mark.kits_own
def test_only_this_images_packages_are_installed(image: Image, client: docker.DockerClient) -> None:
    packages = shell_output(
        client, image, "cd /opt/berth/lib/python3.11/site-packages/berth && ls --ignore '__*'"
    ).split()
    name = name_of(image)
    assert packages == sorted(["contract", "qa", "runtime", name, *(["smdistributed"] if name == "train" else [])])


@pytest.mark.kits_own
def test_only_tritons_compiler_is_installed(either: Host, profile: pins.Profile) -> None:
    c_only = ("cc", "gcc", "ld", "as")
    for tool in ("g++", "c++", "clang", "make", "cmake", "mpicc", *(() if profile.cuda else c_only)):
        assert either.run(f"command -v {tool}").rc != 0, tool


@pytest.mark.kits_own
def test_image_has_no_caches_tests_or_headers(image: Image, client: docker.DockerClient) -> None:
    folders = "/var/lib/apt/lists /root/.cache /tmp /var/cache/apt/archives /run/secrets"
    assert shell_output(client, image, f"find {folders} -type f ! -name lock 2>/dev/null || true") == ""
    assert shell_output(client, image, "find /opt/berth -name '*.a' -o -name '*.pyx' -path '*/pyarrow/*'") == ""
    torch = shell_output(client, image, "ls /opt/berth/lib/python3.11/site-packages/torch").split()
    assert "__init__.py" in torch
    assert not {"include", "share", "test"} & set(torch)


def test_image_has_no_private_key(image: Image, client: docker.DockerClient) -> None:
    keys = 'grep -rlE "BEGIN ([A-Z]+ )?PRIVATE KEY" /etc /root /home /run /opt/ml 2>/dev/null || true'
    assert shell_output(client, image, keys) == ""
    assert shell_output(client, image, "ls /etc/ssh/ssh_host_* 2>/dev/null || true") == ""


@pytest.mark.nightly
@pytest.mark.kits_own
def test_image_is_within_its_budget(slow_image: Image, client: docker.DockerClient, profile: pins.Profile) -> None:
    name = name_of(slow_image)
    measured = image_size(client, f"berth-{name}:{profile.name}", budget_mb=profile.budget[name])
    assert measured.within_budget, measured.verdict()


def test_importing_torch_prints_nothing(either: Host) -> None:
    done = either.run("timeout 120 python -W error -c 'import torch, transformers'")
    assert (done.rc, done.stdout, done.stderr) == (0, "", "")
