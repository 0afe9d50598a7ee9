"""The Dockerfiles hold what is written elsewhere: every build argument is declared, used, and docker/pins.toml's."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from berth.images import dockerfiles, pins

KIT = pins.load()
CPU = KIT.profile("cpu")
DOCKER = pins.ROOT / "docker"
SHARED = (DOCKER / "shared.Dockerfile").read_text()


def dockerfile(image: str) -> str:
    return (DOCKER / f"{image}.Dockerfile").read_text()


@pytest.mark.parametrize("image", pins.IMAGES)
def test_dockerfile_defaults_are_the_cpu_row_and_its_first_stages_the_shared_ones(image: str) -> None:
    text = dockerfile(image)
    arguments = dockerfiles.build_arguments(KIT, CPU, image)
    assert text == dockerfiles.render_dockerfile(text, arguments, SHARED), "run `python build.py pins`"
    assert dockerfiles.rendered_arguments(text) == arguments


@pytest.mark.parametrize("image", pins.IMAGES)
def test_every_argument_is_declared_in_a_stage_and_used_there(image: str) -> None:
    body = dockerfile(image).split(dockerfiles.ARGUMENTS[1])[1]
    for name in dockerfiles.build_arguments(KIT, CPU, image):
        assert f"${{{name}}}" in body, f"{name} is used by no stage of {image}.Dockerfile"
        if name != "BASE_IMAGE":
            assert f"\nARG {name}\n" in body, f"{name} is declared by no stage of {image}.Dockerfile"


@pytest.mark.parametrize("image", pins.IMAGES)
def test_no_stage_declares_an_argument_without_a_pin(image: str) -> None:
    declared = set(re.findall(r"^ARG (\w+)", dockerfile(image), flags=re.MULTILINE))
    assert declared == set(dockerfiles.build_arguments(KIT, CPU, image))


def test_no_stage_stands_twice() -> None:
    own = [set(re.split(r"\n\n", dockerfile(image).split(dockerfiles.STAGES[1])[1])) for image in pins.IMAGES]
    assert [text for text in set.intersection(*own) if "FROM " in text] == [], "put it into docker/shared.Dockerfile"


# What a script calls, and the secrets that this takes.
NEEDED = {
    r"\binstall_debian\b|\bapt_get\b": {"ca", "apt", "apt-auth", "apt-sources"},
    r"\binstall_locked\b": {"ca", "uv"},
    r"/pip (install|wheel)\b": {"ca", "pip"},
}


@pytest.mark.parametrize("image", pins.IMAGES)
def test_a_step_mounts_the_secrets_that_it_needs_and_no_others(image: str) -> None:
    for step in re.findall(r"^RUN .*(?:\\\n.*)*", dockerfile(image), flags=re.MULTILINE):
        mounted = set(re.findall(r"type=secret,id=([\w-]+)", step))
        # Who reads no settings of a network has no use for a secret.
        reads = (
            re.findall(r"source=(docker/layers/\w+\.sh)", step) if re.search(r"network\.sh|from=tools", step) else []
        )
        scripts = "".join((pins.ROOT / name).read_text() for name in reads if not name.endswith("network.sh"))
        needed: set[str] = set().union(*(secrets for call, secrets in NEEDED.items() if re.search(call, scripts)))
        assert mounted == needed, step


def test_what_layers_share_is_called_from_the_first_of_them_on() -> None:
    """Each layer with tools stands on python and cuda: a script that these call rebuilds all in any case."""
    shared = re.search(r"^COPY ((?:docker/layers/\S+ )+)/$", SHARED, flags=re.MULTILINE)
    assert shared is not None
    first = "".join((DOCKER / "layers" / name).read_text() for name in ("python.sh", "nvidia.sh"))
    assert [name for name in shared[1].split() if f"/tmp/tools/{Path(name).name}" not in first] == []


def test_a_dockerfile_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker").mkdir()
    before = {path.name: path.read_text() for path in DOCKER.glob("*.Dockerfile")}
    for name, text in before.items():
        (tmp_path / "docker" / name).write_text(text)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            dockerfiles.render_dockerfiles(replace(KIT, base_image="another"), tmp_path)
    assert {path.name: path.read_text() for path in (tmp_path / "docker").iterdir()} == before
    dockerfiles.render_dockerfiles(replace(KIT, base_image="another"), tmp_path)
    (tmp_path / "docker" / "shared.Dockerfile").unlink()
    assert all("ARG BASE_IMAGE=another\n" in path.read_text() for path in (tmp_path / "docker").iterdir())
