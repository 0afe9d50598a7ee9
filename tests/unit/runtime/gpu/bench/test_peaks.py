"""Limits of the hardware: bus bandwidth, chips by the driver's name, links from the output of nvidia-smi."""

import pytest

from berth.runtime.gpu.bench import peaks


@pytest.mark.parametrize(
    ("size", "seconds", "ranks", "gb_per_s"),
    [
        pytest.param(10**9, 1.0, 2, 1.0, id="two-ranks"),
        pytest.param(256 << 20, 0.001, 8, 469.762048, id="eight-ranks"),
        pytest.param(10**9, 1.0, 1, 0.0, id="one-rank"),
    ],
)
def test_bus_bandwidth(size: int, seconds: float, ranks: int, gb_per_s: float) -> None:
    assert peaks.bus_bandwidth(size, seconds, ranks) == pytest.approx(gb_per_s)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("Tesla V100-SXM2-16GB", 125),
        ("NVIDIA Tesla V100-PCIE-32GB", 112),
        ("NVIDIA A10G", 70),
        ("NVIDIA A10", 125),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
    ],
)
def test_chip_by_driver_name(name: str, tflops: float) -> None:
    found = peaks.chip(name)
    assert found is not None
    assert found.tflops == tflops
    assert found.source.startswith("NVIDIA ")


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce RTX 4090", "NVIDIA L40", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM2e", ""]
)
def test_unknown_chip(name: str) -> None:
    assert peaks.chip(name) is None


def status(*speeds: str) -> str:
    """The output of `nvidia-smi nvlink -s` for one GPU."""
    links = "".join(f"\t Link {number}: {speed}\n" for number, speed in enumerate(speeds))
    return f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n{links}"


@pytest.mark.parametrize(
    ("text", "gb_per_s"),
    [
        pytest.param(status(*["26.562 GB/s"] * 18) * 2, 478.116, id="nvlink"),
        pytest.param(status("25 GB/s", "25 GB/s") + status("25 GB/s", "<inactive>"), 25, id="slowest"),
        pytest.param(status("25 GB/s") + status("<inactive>"), None, id="one-gpu-without-nvlink"),
        pytest.param(status(), None, id="no-nvlink"),
        pytest.param("", None, id="no-nvidia-smi"),
    ],
)
def test_nvlink_from_nvidia_smi(text: str, gb_per_s: float | None) -> None:
    assert peaks.nvlink(text) == (gb_per_s and pytest.approx(gb_per_s))
