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


def nvlink(*speeds: str) -> str:
    """The output of `nvidia-smi nvlink -s` for one GPU."""
    links = "".join(f"\t Link {number}: {speed}\n" for number, speed in enumerate(speeds))
    return f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n{links}"


@pytest.mark.parametrize(
    ("links", "pcie", "name", "gb_per_s"),
    [
        pytest.param(nvlink(*["26.562 GB/s"] * 18) * 2, "5, 16\n5, 16\n", "NVLink", 478.116, id="nvlink"),
        pytest.param(
            nvlink("25 GB/s", "25 GB/s") + nvlink("25 GB/s", "<inactive>"), "", "NVLink", 25, id="slowest-nvlink"
        ),
        pytest.param(
            nvlink("25 GB/s") + nvlink("<inactive>"), "4, 16\n", "PCIe 4.0 x16", 31.504, id="one-gpu-without-nvlink"
        ),
        pytest.param("", "4, 16\n4, 8\n", "PCIe 4.0 x8", 15.752, id="slowest-pcie"),
        pytest.param(nvlink(), "3, 16\n", "PCIe 3.0 x16", 15.76, id="no-nvlink"),
    ],
)
def test_link_from_nvidia_smi(links: str, pcie: str, name: str, gb_per_s: float) -> None:
    found = peaks.link(links, pcie)
    assert found is not None
    assert (found.name, found.gb_per_s) == (name, pytest.approx(gb_per_s))


@pytest.mark.parametrize(
    ("links", "pcie"),
    [
        pytest.param("", "", id="no-nvidia-smi"),
        pytest.param("", "[N/A], [N/A]\n", id="unknown-in-virtual-machine"),
        pytest.param("", "9, 16\n", id="unknown-generation"),
    ],
)
def test_unknown_link(links: str, pcie: str) -> None:
    assert peaks.link(links, pcie) is None
