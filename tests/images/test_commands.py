"""Commands on a real engine: uri, doctor, clean, run serve until Ctrl-C, run train, and a small demo."""

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import certifi
import docker
import pytest

from berth.common import labels
from berth.images import doctor
from berth.images.clean import remove_all
from berth.images.pins import pins
from berth.local import demo
from berth.local.serve.endpoint import ask
from tests.doubles.package_index import wheel
from tests.images.conftest import CommandLine, Demo
from tests.ports import free_port

BUILD = [sys.executable, str(pins.ROOT / "build.py")]


@pytest.mark.parametrize("image", pins.IMAGES)
def test_uri_prints_only_the_build_tag(
    image: str, client: docker.DockerClient, profile: pins.Profile, command_line: CommandLine
) -> None:
    found = client.images.get(f"berth-{image}:{profile.name}")
    printed = command_line("uri", image, "--profile", profile.name)
    assert (printed.returncode, printed.stderr) == (0, "")
    (tag,) = printed.stdout.split()
    begin = re.escape(f"berth-{image}:build-{pins.version()}-{profile.name}-")
    assert re.fullmatch(rf"{begin}([0-9a-f]{{12}}(-dirty)?|none)", tag)
    assert client.images.get(tag).id == found.id
    (entry,) = json.loads(command_line("uri", image, "--profile", profile.name, "--json").stdout)
    assert (entry["image_uri"], entry["local_id"]) == (tag, found.id)


def test_doctor_finds_nothing_missing(client: docker.DockerClient, command_line: CommandLine) -> None:
    # The images were just built, so the disk may be too full for another build.
    full = shutil.disk_usage(client.info()["DockerRootDir"]).free < doctor.DISK_NEEDED_GB * 1e9
    done = command_line("doctor")
    assert (done.returncode, done.stdout.count("missing")) == (int(full), int(full)), done.stdout
    assert "berth-base:bookworm" in done.stdout or "debian:bookworm" in done.stdout


def test_clean_removes_leftovers_and_keeps_users_objects(
    client: docker.DockerClient, profile: pins.Profile, command_line: CommandLine
) -> None:
    image = f"berth-serve:{profile.name}"
    left = client.containers.create(image, labels={labels.KIT: "run", labels.RUN: "left"})
    network = client.networks.create("berth-test-left", labels={labels.KIT: "run"})
    users = client.containers.create(image)
    users_running = client.containers.run(image, ["300"], entrypoint=["sleep"], network_mode="none", detach=True)
    work = client.containers.create(image, ["-c", "echo work > /work"], entrypoint=["sh"])
    work.start()
    work.wait()
    built = work.commit()  # an unnamed image built from berth's
    try:
        listed = {str(item) for item in remove_all(client, dry_run=True)}
        assert {f"container {left.name}", "network berth-test-left"} <= listed
        why = "no run of berth started it; `docker rm` removes it"
        assert {f"container {each.name} stays: {why}" for each in (users, users_running, work)} <= listed
        assert f"image {built.id} stays: it is your own, built FROM berth's; `docker rmi` removes it" in listed
        cleaned = command_line("clean", "--keep-images")
        assert cleaned.returncode == 0, cleaned.stderr
        assert "image " not in cleaned.stdout
        assert not client.containers.list(all=True, filters={"id": left.id})
        assert not client.networks.list(names=["berth-test-left"])
        for each in (users, users_running, work):
            assert client.containers.list(all=True, filters={"id": each.id})
        assert client.images.get(image)
    finally:
        for each in (users, users_running, work):
            each.remove(force=True)
        client.images.remove(built.id)
        for each in (*client.containers.list(all=True, filters={"id": left.id}), *client.networks.list([network.name])):
            each.remove()


@pytest.fixture(params=["--profile", pytest.param("--image", marks=pytest.mark.nightly)])
def which_server(
    client: docker.DockerClient, profile: pins.Profile, request: pytest.FixtureRequest
) -> Iterator[list[str]]:
    """Options for berth's inference image, and for a user's image built FROM it."""
    if request.param == "--profile":
        yield ["--profile", profile.name]
        return
    dockerfile = io.BytesIO(f"FROM berth-serve:{profile.name}\nENV MINE=1\n".encode())
    client.images.build(fileobj=dockerfile, tag="berth-test:server", rm=True)
    yield ["--image", "berth-test:server"]
    client.images.remove("berth-test:server")


def test_serve_answers_until_ctrl_c_and_removes_its_container(
    client: docker.DockerClient, which_server: list[str], small_demo: Demo
) -> None:
    model = small_demo.out / "model.tar.gz"
    port = free_port()
    command = [*BUILD, "run", "serve", "--model", str(model), "--port", str(port), *which_server]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        output = ""
        while "Ready at" not in output:
            line = server.stderr.readline()
            assert line, output
            output += line
        answer = ask(f"http://127.0.0.1:{port}", **{"question": "Who?", "context": "Philipp is a data scientist."})
        assert answer["answer"] in "Philipp is a data scientist."
    finally:
        server.send_signal(signal.SIGINT)
        log, _ = server.communicate(timeout=60)
    assert server.returncode == 0
    assert f"listening on port {port}" in log, "the log has the port of this machine"
    assert not client.containers.list(all=True, filters={"label": f"{labels.PID}={server.pid}"})


def test_demo_fails_if_the_scores_are_too_low(small_demo: Demo) -> None:
    assert small_demo.code == 1
    assert "Only 24 held-out questions were answered; the demo wants 500." in small_demo.printed


def test_demo_prints_loss_scores_and_both_answers(small_demo: Demo) -> None:
    printed, out = small_demo.printed, small_demo.out
    for row in (
        r"training loss, mean\W+\d+\.\d+",
        r"held-out questions\W+24",
        r"held-out exact match\W+\d+\.\d %",
        r"held-out F1\W+\d+\.\d %",
        r"What is used for inference\? .* \d\.\d{3} .* sagemaker ",
        r"What does Philipp do for living\? .* \d\.\d{3} .* data scientist ",
        r"step 4 of 4 +loss: ",
    ):
        assert re.search(row, printed), f"{row} is not in\n{printed}"
    assert f"{out / 'training.svg'}" in printed
    assert "training to step 4" in ElementTree.parse(out / "training.svg").getroot()[0].text
    assert {"model.tar.gz", "train.log", "serve.log"} <= {path.name for path in out.iterdir()}


def test_invalid_hyperparameters_are_refused_before_a_container_starts(
    tmp_path: Path, profile: pins.Profile, command_line: CommandLine
) -> None:
    model = demo.pretrained_model()
    data = pins.ROOT / "sample/squad-train.json.xz"
    words = ("run", "train", "--data", str(data), "--model", str(model), "--image", f"berth-train:{profile.name}")
    refused = command_line(*words, "-p", "max_stepz=4", "-p", "learning_rate=fast", "--output", str(tmp_path / "out"))
    assert refused.returncode == 1
    assert refused.stderr == (
        "berth: error: 2 hyperparameters can't be used: max_stepz is not known (did you mean max_steps?); "
        "learning_rate 'fast' is not a number; fix them and start the job again.\n"
    )
    assert not (tmp_path / "out").exists()
    refused = command_line(*words[:-1], f"berth-serve:{profile.name}")
    assert refused.stderr == (
        f"berth: error: berth-serve:{profile.name} was built FROM berth-serve, but this command needs "
        "berth-train: name another image.\n"
    )


def test_job_gets_wheels_and_ca_for_its_requirements(
    tmp_path: Path, profile: pins.Profile, command_line: CommandLine
) -> None:
    wheels, code = tmp_path / "wheels", tmp_path / "src"
    for folder in (wheels, code):
        folder.mkdir()
    (wheels / "lent_here-1.0-py3-none-any.whl").write_bytes(wheel("lent_here", "print('lent')\n"))
    (code / "requirements.txt").write_text("--no-index\nlent-here==1.0\n")
    (code / "train.py").write_text(
        "import os, lent_here\nprint(os.environ['PIP_CERT'], len(open('/run/secrets/ca').read()) > 0)\n"
        "try:\n    open('/run/secrets/pip', 'a')\nexcept OSError as error:\n    print(error.strerror)\n"
    )
    job = command_line(
        *("run", "train", "--code", str(code), "--output", str(tmp_path / "out"), "--profile", profile.name),
        PIP_FIND_LINKS=str(wheels),
        SSL_CERT_FILE=certifi.where(),
    )
    assert job.returncode == 0, job.stdout + job.stderr
    for line in ("lent", "/run/secrets/ca True", "Read-only file system"):
        assert f"algo-1 | {line}\n" in job.stdout
