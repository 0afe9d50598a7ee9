"""The Dockerfiles hold what is written elsewhere: every build argument is declared, used, and docker/pins.toml's."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from berth.images import dockerfiles, pins

KIT = pins.load()
CPU = KIT.profile("cpu")
DOCKER = pins.ROOT / "docker"


def dockerfile(image: str) -> str:
    return (DOCKER / f"{image}.Dockerfile").read_text()


@pytest.mark.parametrize("image", pins.IMAGES)
def test_dockerfile_defaults_are_the_cpu_row(image: str) -> None:
    text = dockerfile(image)
    arguments = dockerfiles.build_arguments(KIT, CPU, image)
    assert text == dockerfiles.render_arguments(text, arguments), "run `python build.py pins`"
    assert dockerfiles.rendered_arguments(text) == arguments


@pytest.mark.parametrize("image", pins.IMAGES)
def test_every_argument_is_declared_in_a_stage_and_used_there(image: str) -> None:
    body = dockerfile(image).split(dockerfiles.END)[1]
    for name in dockerfiles.build_arguments(KIT, CPU, image):
        assert f"${{{name}}}" in body, f"{name} is used by no stage of {image}.Dockerfile"
        if name != "BASE_IMAGE":
            assert f"\nARG {name}\n" in body, f"{name} is declared by no stage of {image}.Dockerfile"


@pytest.mark.parametrize("image", pins.IMAGES)
def test_no_stage_declares_an_argument_without_a_pin(image: str) -> None:
    declared = set(re.findall(r"^ARG (\w+)", dockerfile(image), flags=re.MULTILINE))
    assert declared == set(dockerfiles.build_arguments(KIT, CPU, image))


def test_a_dockerfile_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker").mkdir()
    before = {}
    for image in pins.IMAGES:
        path = tmp_path / "docker" / f"{image}.Dockerfile"
        before[path.name] = (DOCKER / path.name).read_text()
        path.write_text(before[path.name])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            dockerfiles.render_dockerfiles(replace(KIT, base_image="another"), tmp_path)
    assert {path.name: path.read_text() for path in (tmp_path / "docker").iterdir()} == before
    dockerfiles.render_dockerfiles(replace(KIT, base_image="another"), tmp_path)
    assert all("ARG BASE_IMAGE=another\n" in path.read_text() for path in (tmp_path / "docker").iterdir())
