"""Which images run on which GPUs and drivers, and which host or image the error recommends otherwise."""

import pytest

from berth.contract.gpu_hosts import minimum, parse
from berth.runtime.gpu.compatibility import UsableGpus, incompatibility, no_gpu, usable_gpus
from berth.runtime.gpu.driver import Device, DriverState

GPUS = {
    "p3": Device("Tesla V100-SXM2-16GB", (7, 0)),
    "g4dn": Device("Tesla T4", (7, 5)),
    "p4d": Device("NVIDIA A100-SXM4-40GB", (8, 0)),
    "g5": Device("NVIDIA A10G", (8, 6)),
    "g6": Device("NVIDIA L4", (8, 9)),
    "p5": Device("NVIDIA H100 80GB HBM3", (9, 0)),
    "p5en": Device("NVIDIA H200", (9, 0)),
    "p6": Device("NVIDIA B200", (10, 0)),
    "rtx": Device("NVIDIA RTX PRO 6000", (12, 0)),
}
DRIVERS = {470: (11, 4), 525: (12, 0), 535: (12, 2), 550: (12, 4), 570: (12, 8), 580: (13, 0), 590: (13, 1)}


@pytest.mark.parametrize(
    ("cuda", "gpu", "driver", "words"),
    [
        ("13.0", "p3", 470, ["compute capability 7.0", "driver 525", "gpu-3-1", "profile cu124"]),
        ("12.4", "p6", 570, ["compute capability 10.0", "driver 580", "gpu-4-1", "profile cu130"]),
        ("13.0", "rtx", 570, ["needs driver 580", "driver 570 ends", "gpu-4-1", "cuda-compat"]),
        ("13.0", "g5", 580, []),
        ("13.0", "p6", 590, []),
        ("12.4", "p5", 525, []),
        ("12.4", "p3", 525, []),
    ],
)
def test_incompatibility_of_image_gpu_and_driver(cuda: str, gpu: str, driver: int, words: list[str]) -> None:
    sentence = incompatibility(cuda, 2, DriverState(version=DRIVERS[driver], code=0, devices=(GPUS[gpu],) * 2))
    assert (sentence is None) == (not words), sentence
    assert all(word in str(sentence) for word in words)


def test_full_sentences() -> None:
    def say(cuda: str, gpu: str, driver: int, compat: DriverState | None = None) -> str | None:
        return incompatibility(cuda, 1, DriverState(version=DRIVERS[driver], code=0, devices=(GPUS[gpu],)), compat)

    assert say("13.0", "p3", 580) == (
        "Tesla V100-SXM2-16GB has compute capability 7.0 but this image's torch, built for CUDA 13.0, needs 7.5 or "
        "newer: use an image of profile cu124."
    )
    assert say("12.4", "p6", 580) == (
        "NVIDIA B200 has compute capability 10.0 but this image's torch, built for CUDA 12.4, needs 9.0 or older: use "
        "an image of profile cu130."
    )
    assert say("13.0", "g5", 550) == (
        "This image's torch is built for CUDA 13.0, which needs driver 580 or newer, but the host's driver 550 ends at "
        "CUDA 12.4: use an image of profile cu124, or a host with driver 580 (an endpoint: InferenceAmiVersion "
        "al2023-ami-sagemaker-inference-gpu-4-1)."
    )
    assert say("13.0", "g4dn", 470) == (
        "This image's torch is built for CUDA 13.0, which needs driver 580 or newer, but the host's driver 470 ends at "
        "CUDA 11.4: use a host with driver 580 (an endpoint: InferenceAmiVersion "
        "al2023-ami-sagemaker-inference-gpu-4-1), or a host with driver 525 (an endpoint: InferenceAmiVersion "
        "al2-ami-sagemaker-inference-gpu-3-1; a batch transform: TransformAmiVersion al2-ami-sagemaker-batch-gpu-535) "
        "and an image of profile cu124, or build the image with cuda-compat."
    )
    refused = DriverState(version=(12, 4), code=804, name="CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE")
    assert say("12.4", "g4dn", 470, refused) == (
        "This image's torch is built for CUDA 12.4, which needs driver 525 or newer, but the host's driver 470 ends at "
        "CUDA 11.4 and cuda-compat did not help (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE): use a host with driver "
        "525 (an endpoint: InferenceAmiVersion al2-ami-sagemaker-inference-gpu-3-1; a batch transform: "
        "TransformAmiVersion al2-ami-sagemaker-batch-gpu-535)."
    )
    k80 = DriverState(version=(11, 4), code=0, devices=(Device("Tesla K80", (3, 7)),))
    assert incompatibility("12.4", 1, k80) == (
        "Tesla K80 has compute capability 3.7 but this image's torch, built for CUDA 12.4, needs 5.0 or newer: use a "
        "host with a newer GPU."
    )


def test_one_unsuitable_gpu_among_others_is_found() -> None:
    state = DriverState(version=(13, 0), code=0, devices=(GPUS["g5"], GPUS["p3"]))
    assert "Tesla V100" in str(incompatibility("13.0", 2, state))


def test_no_incompatibility_without_gpus_or_cuda() -> None:
    no_driver = DriverState(missing="libcuda.so.1: cannot open shared object file")
    assert incompatibility(None, 8, no_driver) is None
    assert incompatibility("13.0", 0, no_driver) is None


def test_missing_driver_library() -> None:
    state = DriverState(missing="libcuda.so.1: cannot open shared object file: No such file or directory")
    assert incompatibility("13.0", 1, state) == (
        "The host's GPUs are in this container but the driver's library is not (libcuda.so.1: cannot open shared "
        "object file: No such file or directory): start the container through NVIDIA's runtime, docker run --gpus all, "
        "instead of passing only the devices."
    )


@pytest.mark.parametrize(
    ("code", "name", "hint"),
    [
        (100, "CUDA_ERROR_NO_DEVICE", "--gpus all"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart the host"),
        (999, "CUDA_ERROR_UNKNOWN", "nvidia-uvm"),
        (34, "CUDA_ERROR_STUB_LIBRARY", "LD_LIBRARY_PATH"),
        (304, "CUDA_ERROR_OPERATING_SYSTEM", "--gpus all"),
        (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "nvidia-smi and dmesg"),
        (12345, "", "CUDA error 12345"),
    ],
)
def test_error_codes_of_cuinit(code: int, name: str, hint: str) -> None:
    closed = ("/dev/nvidia0: Operation not permitted",)
    sentence = incompatibility("13.0", 1, DriverState(version=(13, 0), code=code, name=name, closed=closed))
    assert sentence is not None
    assert f"({code}) (/dev/nvidia0: Operation not permitted): " in sentence
    assert name in sentence
    assert hint in sentence


@pytest.mark.parametrize("fault", ["crashed (SIGSEGV)", "did not answer within 60 s"])
def test_failing_driver_library(fault: str) -> None:
    assert f"the driver's library {fault}: look at nvidia-smi" in str(
        incompatibility("12.4", 1, DriverState(fault=fault))
    )


DMESG = "look at nvidia-smi and dmesg on the host"
LOST = f"The driver offers 7 of the 8 GPUs in this container: {DMESG}, or use another host."
NONE = "The driver offers none of the GPUs in this container: look at "
MIG = Device("NVIDIA A100-SXM4-40GB MIG 1g.5gb", (8, 0))


@pytest.mark.parametrize(
    ("devices", "visible", "every", "expected"),
    [
        pytest.param([GPUS["p4d"]] * 8, None, True, UsableGpus(8), id="all"),
        pytest.param([GPUS["p4d"]] * 7, None, True, UsableGpus(7, LOST), id="lost-gpu"),
        pytest.param([GPUS["p4d"]] * 7, "", True, UsableGpus(7, LOST), id="empty-variable-counts-as-unset"),
        pytest.param(
            [GPUS["p4d"]] * 7,
            None,
            False,
            UsableGpus(7, line=f"the driver offers 7 of 8 GPUs here ({DMESG})"),
            id="lost-gpu-of-server",
        ),
        pytest.param(
            [MIG],
            None,
            True,
            UsableGpus(1, line="the driver offers 1 of 8 GPUs here (MIG: a process can use one instance)"),
        ),
        pytest.param(
            [GPUS["p4d"]] * 2,
            "0,1,9,3,4,5,6,7",
            True,
            UsableGpus(2, line="the driver offers 2 of 8 GPUs here (CUDA_VISIBLE_DEVICES is 0,1,9,3,4,5,6,7)"),
            id="selected-by-variable",
        ),
        pytest.param([], None, False, UsableGpus(0, NONE + "nvidia-smi and dmesg on the host, or use another host.")),
        pytest.param(
            [],
            "GPU-1",
            True,
            UsableGpus(0, NONE + "CUDA_VISIBLE_DEVICES, or use another host."),
            id="variable-selects-none",
        ),
    ],
)
def test_usable_gpus_with_eight_device_nodes(
    devices: list[Device], visible: str | None, every: bool, expected: UsableGpus
) -> None:
    assert (
        usable_gpus(8, DriverState(version=(13, 0), code=0, devices=tuple(devices)), visible, every=every) == expected
    )


def test_wsl_device_stands_for_all_gpus() -> None:
    """WSL has one device node for all GPUs."""
    assert usable_gpus(1, DriverState(version=(13, 0), code=0, devices=(GPUS["rtx"],) * 2), None) == UsableGpus(2)


def test_no_gpu_names_variable_that_hides_gpus() -> None:
    start = "no GPU is usable: torch for CUDA 13.0 runs on the CPU "
    passed = f"{start}(docker run --gpus all passes GPUs in)"
    assert no_gpu("13.0", 0, None) == no_gpu("13.0", 0, "") == passed
    assert no_gpu("13.0", 8, "") == f"{start}(CUDA_VISIBLE_DEVICES is '', which hides the 8 here: unset it to use them)"


def test_parse_and_minimum_of_cuda_version() -> None:
    assert parse("12.4") == parse("12.4.1") == (12, 4)
    assert parse("13") == (13, 0)
    assert minimum((12, 8)) == (12, 0)
