"""Both CUDA images check the driver before they import torch. A double of libcuda describes the host.

Collected only for profiles with CUDA (conftest.py): CPU images don't check the driver.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import docker
import pytest

PROFILE = os.environ.get("BERTH_PROFILE", "")
NEW = PROFILE.startswith("cu13")
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
COMPAT = "/usr/local/cuda-compat/libcuda.so.1"
A10G = {"FAKE_CUDA_DEVICES": "NVIDIA A10G:8.6"}
OLD, CURRENT = {"FAKE_CUDA_VERSION": "11040"}, {"FAKE_CUDA_VERSION": "13000"}
COMPAT_WORKS = {"COMPAT_CUDA_VERSION": "13000", "COMPAT_CUDA_DEVICES": "NVIDIA A10G:8.6"}
PROGRAM = "import os\nprint('path', os.environ.get('LD_LIBRARY_PATH', '').split(':')[0], flush=True)\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def on_a_gpu(client: docker.DockerClient, tmp_path: Path, libcuda: Callable[..., Path]) -> Run:
    """`on_a_gpu("train", FAKE_…, library=True, compat=False)`: exit code, log and the failure file's first line, of a
    container with a device node /dev/nvidia0. The training image runs a program that prints its first library folder.
    """

    def run(
        image: str, variables: Mapping[str, str], *, library: bool = True, compat: bool = False
    ) -> tuple[int, str, str]:
        code, output = tmp_path / "code", tmp_path / "output"
        for folder in (code, output):
            folder.mkdir(exist_ok=True)
        (code / "train.py").write_text(PROGRAM)
        volumes = [f"{code}:/opt/ml/code:ro", f"{output}:/opt/ml/output"]
        if library:
            volumes.append(f"{libcuda(tmp_path / 'driver')}/libcuda.so.1:{LIBRARY}:ro")
        if compat:
            volumes.append(f"{libcuda(tmp_path / 'compat', 'COMPAT_CUDA_')}/libcuda.so.1:{COMPAT}:ro")
        container = client.containers.run(
            f"berth-{image}:{PROFILE}",
            [image],
            detach=True,
            network_mode="none",
            labels={"berth.test": "1"},
            devices=["/dev/null:/dev/nvidia0:rwm"],
            volumes=volumes,
            environment={"SAGEMAKER_PROGRAM": "train.py", **variables},
        )
        try:
            exit_code = container.wait(timeout=120)["StatusCode"]
            log = container.logs().decode()
        finally:
            container.remove(force=True)
        print(log)
        failure = output / "failure"
        return exit_code, log, failure.read_text().splitlines()[0] if failure.exists() else ""

    return run


REFUSED = {
    "a driver that is too old": (
        OLD | A10G,
        True,
        ("needs driver 580" if NEW else "needs driver 525", "driver 470 ends at CUDA 11.4", "InferenceAmiVersion"),
    ),
    "a GPU that torch does not know": (
        CURRENT | {"FAKE_CUDA_DEVICES": "Tesla V100-SXM2-16GB:7.0" if NEW else "NVIDIA B200:10.0"},
        True,
        ("compute capability", "use an image of profile cu124" if NEW else "use an image of profile cu130"),
    ),
    "the driver's library is missing": (A10G, False, ("libcuda.so.1: cannot open", "docker run --gpus all")),
    "the fabric manager is not up": (
        CURRENT | {"FAKE_CUDA_INIT": "802"},
        True,
        ("CUDA_ERROR_SYSTEM_NOT_READY (802)", "nvidia-fabricmanager"),
    ),
    "the library crashes": (CURRENT | {"FAKE_CUDA_INIT": "crash"}, True, ("crashed (SIGABRT)", "nvidia-smi")),
}


@pytest.mark.parametrize(("variables", "library", "words"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("image", ["train", "serve"])
def test_unsuitable_host_is_refused_in_one_sentence(
    on_a_gpu: Run, image: str, variables: Mapping[str, str], library: bool, words: tuple[str, ...]
) -> None:
    code, log, failure = on_a_gpu(image, variables, library=library)
    assert code == 1
    assert "Traceback" not in log
    if image == "train":
        assert f"berth: failed: {failure}\n" in log
    sentence = failure if image == "train" else log
    lines = [line for line in log.splitlines() if not line.startswith("berth: software: ")]
    assert len(lines) == (2 if image == "train" else 1), "the sentence, and train's line with the exit code"
    for word in words:
        assert word in sentence


def test_suitable_driver_runs_the_program(on_a_gpu: Run) -> None:
    code, log, _ = on_a_gpu("train", CURRENT | A10G)
    assert code == 0, log
    assert "backend: nccl, over lo: 1 GPU on each host" in log
    assert "cuda-compat" not in log


def test_cuda_compat_replaces_old_driver_for_all_ranks(on_a_gpu: Run) -> None:
    code, log, _ = on_a_gpu("train", OLD | A10G | COMPAT_WORKS, compat=True)
    assert code == 0, log
    assert log.count("berth: cuda-compat: the host's driver is too old") == 1
    assert "\npath /usr/local/cuda-compat\n" in log
    assert log.count("launch plan") == 1


def test_cuda_compat_is_unused_with_a_new_driver(on_a_gpu: Run) -> None:
    code, log, _ = on_a_gpu("train", CURRENT | A10G | COMPAT_WORKS, compat=True)
    assert code == 0, log
    assert "cuda-compat" not in log


def test_cuda_image_without_gpu_reports_cpu(client: docker.DockerClient, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran', flush=True)")
    log = client.containers.run(
        f"berth-train:{PROFILE}",
        ["train"],
        remove=True,
        network_mode="none",
        volumes=[f"{tmp_path}:/opt/ml/code:ro"],
        environment={"SAGEMAKER_PROGRAM": "train.py"},
    ).decode()
    assert "berth: no GPU is usable: torch for CUDA" in log
    assert "\nran\n" in log


def test_driver_module_prints_json(client: docker.DockerClient) -> None:
    command = ["python", "-P", "-m", "berth.runtime.gpu.driver"]
    host = json.loads(client.containers.run(f"berth-train:{PROFILE}", command, remove=True, network_mode="none"))
    assert host["missing"].startswith("libcuda.so.1: cannot open shared object file")
