"""docker/Dockerfile: its stages, their scripts, and the secrets that they mount."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from berth.images.pins import layer_files, pins, pins_file

PINS = pins_file.load()
DOCKER = pins.ROOT / "docker"
LAYERS = DOCKER / "layers"
TEXT = (DOCKER / "Dockerfile").read_text()
STEPS = re.findall(r"^RUN (?:.*\\\n)*.*", TEXT, flags=re.MULTILINE)


def test_dockerfile_has_pinned_base_and_version() -> None:
    assert layer_files.dockerfile(TEXT, PINS, pins.version()) == TEXT, "run `python build.py pins --no-locks`"
    changed = layer_files.dockerfile(TEXT, replace(PINS, base_image="another"), "9.9")
    assert "\nARG BASE_IMAGE=another\n" in changed
    assert changed.count('org.opencontainers.image.version="9.9"') == 2


def test_dockerfile_has_three_build_arguments() -> None:
    assert re.findall(r"^ARG (\w+)=", TEXT, flags=re.MULTILINE) == ["PROFILE", "WITHOUT", "BASE_IMAGE"]


def run_inputs(docker: Path, tmp_path: Path, profile: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the script of the stage `inputs` on a copy of docker/, with `tmp_path` as its /layers."""
    script = (LAYERS / "inputs.sh").read_text()
    script = script.replace("docker=/tmp/docker layers=/layers", f"docker='{docker}' layers='{tmp_path}/layers'")
    return subprocess.run(["/bin/sh", "-c", script, "sh", profile, without], capture_output=True, text=True)


def read_layers(tmp_path: Path) -> dict[str, dict[str, bytes]]:
    """The files in each step's folder."""
    folders = [each for each in sorted((tmp_path / "layers").iterdir()) if each.is_dir()]
    return {
        folder.name: {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in folders
    }


@pytest.mark.slow
def test_every_step_has_a_layer_script_and_every_script_a_step(tmp_path: Path) -> None:
    assert run_inputs(DOCKER, tmp_path, "cpu").returncode == 0
    mounted = re.findall(r"from=inputs,source=/layers/([\w-]+)", TEXT)
    assert sorted(mounted) == sorted(read_layers(tmp_path))
    stages = re.findall(r"^FROM .* AS ([\w-]+)", TEXT, flags=re.MULTILINE)
    assert sorted(set(stages) - set(mounted)) == ["base", "inputs", "kit-serve", "kit-train", "tools"]


@pytest.mark.slow
def test_torch_steps_read_equal_files_in_all_profiles_of_a_hardware(tmp_path: Path) -> None:
    """Equal files make equal layers, which are built and pulled once."""
    for profile in ("cpu", "cpu-hf4"):
        run_inputs(DOCKER, tmp_path / profile, profile)
    cpu, hf4 = (read_layers(tmp_path / profile) for profile in ("cpu", "cpu-hf4"))
    differ = {step for step, files in cpu.items() if hf4[step] != files}
    assert differ == {
        "openvino-train", "openvino-serve", "openmpi", "system", "source-train", "source-serve", "deps-train",
        "deps-serve", "train", "serve",
    }  # fmt: skip
    assert cpu["openvino-train"] == cpu["openvino-serve"], "both images share this layer"
    run_inputs(DOCKER, tmp_path / "cu130", "cu130")
    cu130 = read_layers(tmp_path / "cu130")
    assert cu130["openvino-train"] != cu130["openvino-serve"]


@pytest.mark.slow
@pytest.mark.parametrize(("without", "files"), [("", ["efa.env"]), ("smddp", ["efa.env"]), ("smddp,efa", [])])
def test_inputs_skip_omitted_part(without: str, files: list[str], tmp_path: Path) -> None:
    assert run_inputs(DOCKER, tmp_path, "cu130", without).returncode == 0
    found = read_layers(tmp_path)
    assert [name for name in found["files"] if name.endswith(".env")] == files
    assert (b"EFA=" in found["train"]["versions"]) == bool(files)


@pytest.mark.parametrize(
    ("profile", "without", "message"),
    [
        ("cu13", "", "Unknown profile 'cu13'; docker/locks has cpu, cpu-hf4, cu124, cu124-hf4, cu130."),
        ("", "", "Unknown profile ''"),
        ("../locks/cpu", "", "Unknown profile '../locks/cpu'"),
        ("cpu", "efs", "Unknown file 'efs' in WITHOUT; it may name efa, smddp, gdrcopy and cuda-compat."),
    ],
)
def test_inputs_report_unknown_profile_or_part(profile: str, without: str, message: str, tmp_path: Path) -> None:
    result = run_inputs(DOCKER, tmp_path, profile, without)
    assert result.returncode == 1
    assert result.stderr.startswith(f"berth: error: {message}")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_inputs_copy_wheels_of_locked_version_only(tmp_path: Path) -> None:
    """Otherwise the CPU build of torch could be installed for CUDA's."""
    copy = tmp_path / "docker"
    for folder in ("layers", "locks"):
        (copy / folder).parent.mkdir(exist_ok=True)
        (copy / folder).symlink_to(DOCKER / folder)
    wheels = copy / "wheels"
    wheels.mkdir()
    for name in (
        "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
        "MarkupSafe-3.0.4-cp311-cp311-manylinux2014_x86_64.whl",
        "sagemaker_training-5.1.4.tar.gz",
        "torch-2.12.0+cpu-cp311-cp311-linux_x86_64.whl",
    ):
        (wheels / name).touch()
    for profile, expected in (
        ("cpu", {"pytorch": {"torch", "MarkupSafe"}, "source-train": {"sagemaker_training"}}),
        ("cu130", {"pytorch": {"MarkupSafe"}, "source-train": {"sagemaker_training"}}),
    ):
        run_inputs(copy, tmp_path / profile, profile)
        copied = {
            step: {name.removeprefix("wheels/").partition("-")[0] for name in files if name.startswith("wheels/")}
            for step, files in read_layers(tmp_path / profile).items()
        }
        assert {step: names for step, names in copied.items() if names} == expected


# Commands in scripts, and the secrets that they need.
APT = {"ca", "apt", "apt-auth", "apt-sources"}
NEEDED = {
    r"\binstall_debian\b|\bapt_get\b": APT,
    r"\binstall_locked\b": {"ca", "uv"},
    r"/pip (install|wheel)\b": {"ca", "pip"},
    r"\bdownload\.py\b": {"ca"},
}
SHARED = {"math": "nvidia", "cuda": "nvidia", "cudnn": "nvidia", "nccl": "nvidia", "driver": "files", "train": "kit"}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: "".join(re.findall(r"source=/layers/([\w-]+)", step)))
def test_steps_mount_only_needed_secrets(step: str) -> None:
    mounted = set(re.findall(r"type=secret,id=([\w-]+)", step))
    needed: set[str] = set()
    for name in re.findall(r"from=inputs,source=/layers/([\w-]+)", step):
        script_name = {**SHARED, "serve": "kit"}.get(name, name.partition("-")[0])
        script = (LAYERS / f"{script_name}.sh").read_text()
        needed = needed.union(*(secrets for call, secrets in NEEDED.items() if re.search(call, script)))
        if name == "driver":  # its file has no signature, so apt is not needed to install gpg
            needed -= APT - {"ca"}
    assert mounted == needed
    assert ("id=ca,mode=0444" in step) == ("id=apt" in step), "apt reads the CA as another user"


def test_dockerfile_is_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_files, "DOCKER", tmp_path)
    (tmp_path / "Dockerfile").write_text(TEXT)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", MagicMock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            layer_files.render_dockerfile(replace(PINS, base_image="another"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"Dockerfile": TEXT}
    layer_files.render_dockerfile(replace(PINS, base_image="another"))
    assert "ARG BASE_IMAGE=another\n" in (tmp_path / "Dockerfile").read_text()


def test_bake_file_has_every_image_in_the_form_that_sagemaker_accepts() -> None:
    text = (DOCKER / "bake.json").read_text()
    assert text == layer_files.bake_file(PINS), "run `python build.py pins --no-locks`"
