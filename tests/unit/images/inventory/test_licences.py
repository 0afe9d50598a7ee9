"""The report of licences: what is grouped, and what is named for a person to look at."""

import io
import json

from rich.console import Console

from berth.images.inventory import licences
from berth.images.inventory.cyclonedx import Bill, BillPackage
from berth.images.inventory.licences import Licensed


def package(name: str, licence: str, version: str = "1.0", path: str = "") -> BillPackage:
    return BillPackage(name, version, "python", licence, "", f"pkg:pypi/{name}@{version}", path)


BILL = Bill(
    "berth-train:cu130",
    "sha256:1",
    (
        package("rich", "MIT"),
        package("rich", "MIT", path="setuptools/_vendor"),
        package("typer", "MIT"),
        package("cuda-toolkit", ""),
        package("nvidia-nccl-cu13", licences.NVIDIA),
        package("nvidia-nvtx", "Apache-2.0"),
        package("odd", f"{licences.NVIDIA} AND MIT"),
        package("loose", "LicenseRef-ad-hoc"),
        package("free", "LicenseRef-public-domain"),
    ),
    {},
)


def test_packages_by_licence_the_commonest_first() -> None:
    found = licences.report(BILL)
    assert found.groups == (
        Licensed("MIT", ("rich 1.0", "typer 1.0")),
        Licensed("Apache-2.0", ("nvidia-nvtx 1.0",)),
        Licensed("LicenseRef-NVIDIA-Proprietary", ("nvidia-nccl-cu13 1.0",)),
        Licensed("LicenseRef-NVIDIA-Proprietary AND MIT", ("odd 1.0",)),
        Licensed("LicenseRef-ad-hoc", ("loose 1.0",)),
        Licensed("LicenseRef-public-domain", ("free 1.0",)),
    )
    assert found.unknown == ("cuda-toolkit 1.0",)
    assert found.nvidia == ("nvidia-nccl-cu13 1.0", "odd 1.0")


def test_what_to_look_at_is_named_apart() -> None:
    found = licences.report(BILL)
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(licences.render(found))
    assert "│ unknown" in console.export_text()
    nvidia, unnamed, unknown = found.sentences()
    assert nvidia.startswith("NVIDIA's own licence holds for nvidia-nccl-cu13 1.0, odd 1.0: read its terms")
    assert unnamed == "No licence of SPDX's list is named by loose 1.0: read what came with each."
    assert unknown.startswith("No licence is known of cuda-toolkit 1.0: read what came with it")


def test_no_name_of_a_licence_is_cut_off() -> None:
    long = "LicenseRef-" + "x" * 60
    console = Console(width=60, file=io.StringIO(), record=True)
    console.print(licences.render(licences.report(Bill("i", "sha256:1", (package("rich", long),), {}))))
    assert console.export_text().count("x") == 60


def test_nothing_to_look_at_is_nothing_said() -> None:
    assert licences.report(Bill("i", "sha256:1", (package("rich", "MIT"),), {})).sentences() == []
    assert licences.report(Bill("i", "sha256:1", (), {})).groups == ()


def test_json_is_the_report_itself() -> None:
    assert json.loads(json.dumps(licences.report(BILL).as_dict()))["unknown"] == ["cuda-toolkit 1.0"]


def test_a_report_is_short_unless_all_is_asked_for() -> None:
    packages = tuple(package(f"name-{number:02}", f"LicenseRef-{number:02}") for number in range(30))
    found = licences.report(Bill("i", "sha256:1", packages, {}))
    texts = []
    for everything in (False, True):
        console = Console(width=100, file=io.StringIO(), record=True)
        console.print(licences.render(found, everything=everything))
        texts.append(console.export_text())
    short, whole = texts
    assert short.startswith("i: 30 packages under 30 licences and groups of them\n")
    assert short.endswith("and 18 more with 18 packages: --all shows them, and what has each licence.\n")
    assert len(short.splitlines()) < 20
    assert "name-" not in short
    assert all(f"name-{number:02}" in whole for number in range(30))
