"""A user's own image `FROM` ours, with one more package, trains his program as ours does."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from berth.images import engine, network, pins
from berth.local.job import run_train

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
PACKAGE = "tabulate==0.9.0"
# pip's settings and the CA bundle of a closed network, where there are any, come in as secrets.
DOCKERFILE = f"""
FROM berth-train:{PROFILE}
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip \\
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \\
    if [ -f /run/secrets/pip ]; then export PIP_CONFIG_FILE=/run/secrets/pip; fi; \\
    pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore {PACKAGE}
"""
PROGRAM = """
import tabulate
from berth.qa import squad
print("tabulate", tabulate.__version__, flush=True)
print(tabulate.tabulate([["algo-1", 1]], headers=["host", "rank"], tablefmt="github"), flush=True)
"""


@pytest.fixture(scope="module")
def derived(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The tag of an image that is built for this test and removed after it."""
    tag = f"berth-test-derived:{uuid.uuid4().hex[:12]}"
    folder = tmp_path_factory.mktemp("derived")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    here = network.gather(os.environ)
    command = [str(engine.find_client()), "build", "--network", "host", "--tag", tag]
    for name, path in here.write_secrets(tmp_path_factory.mktemp("secrets")).items():
        command += ["--secret", f"id={name},src={path}"]
    for name in here.proxies:
        command += ["--build-arg", name]
    done = subprocess.run(
        [*command, str(folder)],
        env=engine.client_environment(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    yield tag
    client.images.remove(tag, force=True)


def test_a_program_in_a_derived_image_imports_its_package(derived: str, tmp_path: Path) -> None:
    for folder in ("data", "code"):
        (tmp_path / folder).mkdir()
    (tmp_path / "data/rows.txt").write_text("1\n")
    (tmp_path / "code/train.py").write_text(PROGRAM)
    log: list[str] = []
    done = run_train(
        tmp_path / "data",
        image=derived,
        output=tmp_path / "out",
        code=tmp_path / "code",
        hyperparameters={"sagemaker_program": "train.py"},
        log=log.append,
        timeout=120,
    )
    print("\n".join(log))
    assert done.exit_code == 0
    assert "algo-1 | tabulate 0.9.0" in log
    assert "algo-1 | | algo-1 |      1 |" in log


def test_the_derived_image_is_still_ours(derived: str, client: docker.DockerClient) -> None:
    configured = client.images.get(derived).attrs["Config"]
    original = client.images.get(f"berth-train:{PROFILE}").attrs["Config"]
    for name in ("Entrypoint", "Cmd", "Env"):
        assert configured[name] == original[name]
