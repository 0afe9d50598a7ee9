"""Known vulnerabilities and updates of Debian: requests, answers, and services that do not answer."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from requests.exceptions import ConnectionError
from rich.console import Console

from berth.common import engine
from berth.common.errors import UserError
from berth.images.inspect import advisories, outdated
from berth.images.inspect.advisories import Audit, Vulnerable
from berth.images.inspect.debian import Update
from berth.images.inspect.outdated import ImageUpdates, Outdated
from berth.images.locks import locked_packages
from berth.images.locks.locked_packages import LockedPackage
from berth.images.network.build_network import Network, PackageIndex
from berth.images.pins import pins_file
from tests.doubles.advisories import AdvisoriesDouble
from tests.doubles.http_server import serving

PINS = pins_file.load()
BOTH = ("train", "serve")
RICH = LockedPackage("rich", "14.0.0", ("serve",), ("cpu",))
TORCH = LockedPackage("torch", "2.13.0+cpu", BOTH, ("cpu",))
OLD_TORCH = LockedPackage("torch", "2.5.1", BOTH, ("cu124",))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the double, which knows no vulnerability."""
    for name, value in {"vulnerable": {}, "requests": [], "status": 200, "body": None}.items():
        monkeypatch.setattr(AdvisoriesDouble, name, value)
    with serving(AdvisoriesDouble) as address:
        yield address


NETWORK = Network(None, PackageIndex(), (), "", "", "")


LOCKS = {
    "build.txt": "uv==0.9.30 \\\n    --hash=sha256:aa\n",
    "cpu/deps-serve.txt": "# made\nrich==15.0.0 \\\n    --hash=sha256:bb\n",
    "cu124/deps-train.txt": "rich==15.0.0\ntransformers==5.15.0\n",
    "cu130/nccl.txt": "nvidia-nccl-cu13==2.29.7\n",
    "cpu/openmpi.txt": "mpi4py==4.1.2\n",
    "cpu/pytorch.txt": "torch==2.13.0+cpu\n",
    "debian/cpu.txt": "libc6 2.36-9\n",
}
LAYERED = {
    "cpu/pytorch.txt": "fsspec==2026.9.0\ntorch==2.13.0+cpu\n",
    "cpu/deps-train.txt": "transformers==5.23.0\n",
    "cpu-hf4/pytorch.txt": "fsspec==2026.9.0\ntorch==2.13.0+cpu\n",
    "cpu-hf4/deps-train.txt": "fsspec==2023.9.2\n",
}


@pytest.mark.parametrize(
    ("profiles", "texts", "packages"),
    [
        pytest.param(
            ["cpu", "cu124"],
            LOCKS,
            [
                LockedPackage("mpi4py", "4.1.2", ("train",), ("cpu",)),
                LockedPackage("rich", "15.0.0", BOTH, ("cpu", "cu124")),
                LockedPackage("torch", "2.13.0+cpu", BOTH, ("cpu",)),
                LockedPackage("transformers", "5.15.0", ("train",), ("cu124",)),
                LockedPackage("uv", "0.9.30", (), ()),
            ],
            id="each-version-once",
        ),
        pytest.param(
            ["cu130"],
            LOCKS,
            [LockedPackage("nvidia-nccl-cu13", "2.29.7", BOTH, ("cu130",)), LockedPackage("uv", "0.9.30", (), ())],
            id="layer-of-both-images",
        ),
        pytest.param(
            ["cpu", "cpu-hf4"],
            LAYERED,
            [
                LockedPackage("fsspec", "2023.9.2", ("train",), ("cpu-hf4",)),
                LockedPackage("fsspec", "2026.9.0", BOTH, ("cpu",)),
                LockedPackage("torch", "2.13.0+cpu", BOTH, ("cpu", "cpu-hf4")),
                LockedPackage("transformers", "5.23.0", ("train",), ("cpu",)),
            ],
            id="the-higher-layers-version",
        ),
    ],
)
def test_packages_of_locks(profiles: list[str], texts: dict[str, str], packages: list[LockedPackage]) -> None:
    assert locked_packages.packages_of(PINS, profiles, texts) == packages


def advisory(name: str, fixed: str) -> dict[str, Any]:
    events = [{"introduced": "0"}, {"fixed": fixed}]
    affected = {"package": {"name": name, "ecosystem": "PyPI"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    return {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "summary": "bad", "affected": [affected]}


@pytest.mark.slow
def test_vulnerabilities_of_every_version_are_found(service: str) -> None:
    AdvisoriesDouble.vulnerable[("torch", "2.5.1")] = advisory("torch", "2.6.0")
    found = advisories.ask_advisories([RICH, TORCH, OLD_TORCH], NETWORK, f"{service}/v1/query")
    torch = Vulnerable("torch", "2.5.1", ("PYSEC-2026-1", "CVE-2026-1"), ("2.6.0",), BOTH, ("cu124",))
    assert found == Audit((torch,), 3)
    # Advisories don't have build suffixes such as +cpu.
    assert sorted(AdvisoriesDouble.requests) == ["rich 14.0.0", "torch 2.13.0", "torch 2.5.1"]


@pytest.mark.slow
@pytest.mark.parametrize(("status", "body"), [(404, None), (500, None), (200, b"<html>")])
def test_silent_advisory_service_is_reported(status: int, body: bytes | None, service: str) -> None:
    AdvisoriesDouble.status, AdvisoriesDouble.body = status, body
    found = advisories.ask_advisories([RICH], NETWORK, f"{service}/v1/query")
    assert (found.vulnerable, found.packages, found.unknown) == ((), 1, 1)
    assert found.unanswered.startswith(
        "Vulnerabilities are unknown, so packages may be insecure: pip-audit got no answer ("
    )
    assert "--osv-url" in found.unanswered
    assert "Traceback" not in found.unanswered


def test_packages_unknown_to_the_service_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {
        "dependencies": [
            {"name": "rich", "version": "14.0.0", "vulns": []},
            {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.13.0)"},
        ]
    }
    assert advisories.parse_audit(answer) == ([], ["torch"])
    # The URL of PyPI's own service can't be changed.
    monkeypatch.setattr(advisories, "_run_audit", lambda *_: answer)
    assert advisories.ask_advisories([RICH, TORCH], NETWORK) == Audit(
        (),
        2,
        1,
        "Vulnerabilities of 1 of 2 packages are unknown, so they may be insecure: the advisory service has no answer "
        "for torch; run the command where https://pypi.org/pypi answers for them, or name a service with OSV's API "
        "with --osv-url.",
    )


def test_unknown_package_in_several_versions_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip(versions: dict[str, str], *_: object) -> dict[str, Any]:
        return {"dependencies": [{"name": name, "skip_reason": "not found"} for name in versions]}

    monkeypatch.setattr(advisories, "_run_audit", skip)
    several = [replace(RICH, version=version) for version in ("13.0", "14.0", "15.0")]
    found = advisories.ask_advisories(several, NETWORK)
    assert (found.packages, found.unknown) == (3, 3)
    assert "has no answer for rich; run" in found.unanswered


def test_lost_engine_is_reported_as_unknown_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "connect", MagicMock(side_effect=ConnectionError("Connection reset by peer")))
    found = outdated._ask_archive("berth-serve:cpu", NETWORK)
    assert isinstance(found, str)
    assert found.startswith(
        "Debian's updates of berth-serve:cpu are not known: The connection to the Docker engine broke"
    )


def test_missing_locks_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no locks in"):
        outdated.find_outdated(PINS, ["cpu"], NETWORK, locks=tmp_path)


def test_outdated_reports_unanswered_services(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cu130").mkdir()
    (tmp_path / "cu130" / "deps-serve.txt").write_text("rich==14.0.0\n")
    monkeypatch.setattr(engine, "connect", MagicMock(side_effect=UserError("no Docker engine answers: start it.")))
    result = outdated.find_outdated(PINS, ["cu130"], NETWORK, f"{service}/v1/query", locks=tmp_path)
    assert result == Outdated(
        unanswered=tuple(
            f"Debian's updates of {image}:cu130 are not known: no Docker engine answers: start it."
            for image in ("berth-train", "berth-serve")
        ),
        packages=1,
    )
    assert not result.insecure


ALL = Outdated(
    (
        Vulnerable("rich", "14.0.0", ("PYSEC-1",), (), ("serve",), ("cpu",)),
        Vulnerable("torch", "2.13.0", ("PYSEC-2",), ("2.14.0",), BOTH, ("cpu",)),
        Vulnerable("uv", "0.9.30", ("PYSEC-3",), ("0.9.31",)),
    ),
    (
        ImageUpdates("berth-serve:cpu", (Update("libc6", "2.36-9", "2.36-10", security=True),)),
        ImageUpdates("berth-train:cpu", ()),
    ),
    ("Vulnerabilities of x are not known.",),
)


def test_tables_and_verdict_of_outdated() -> None:
    console = Console(width=140, file=io.StringIO(), record=True)
    console.print(outdated.render(ALL))
    text = console.export_text()
    for expected in (
        "no release yet",
        "serve: cpu",
        "train, serve: cpu",
        "berth-train:cpu: Debian's archive has nothing newer.",
        "the build's tools",
    ):
        assert expected in text
    assert text.rstrip().endswith(
        "Vulnerabilities of x are not known.\n"
        "vulnerable packages: 3, security updates of Debian: 1; incomplete, because some answers are missing: see "
        "above."
    )
    assert json.loads(json.dumps(ALL.as_dict()))["insecure"] is True


@pytest.mark.parametrize(
    ("packages", "unaudited", "verdict"),
    [
        (221, 0, "vulnerable packages: 0, security"),
        (221, 12, "vulnerable packages: 0 (12 of 221 not known), security"),
        (221, 221, "vulnerable packages: 0 (221 of 221 not known), security"),
    ],
)
def test_verdict_distinguishes_unaudited_packages(packages: int, unaudited: int, verdict: str) -> None:
    assert Outdated(packages=packages, unaudited=unaudited).verdict().startswith(verdict)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", ""),
        ("Traceback\nERROR:pip_audit._cli:no such file", "ERROR:pip_audit._cli:no such file"),
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded "
            "with url: /pypi/rich/14.0.0/json (Caused by NewConnectionError('...'))",
            "pypi.org can't be reached",
        ),
    ],
)
def test_short_reason_of_pip_audit(output: str, reason: str) -> None:
    assert advisories.short_reason(output) == reason


@pytest.mark.parametrize(
    ("found", "insecure", "exit_code"),
    [
        (ALL, True, 1),
        (Outdated(vulnerable=ALL.vulnerable), True, 1),
        (Outdated(debian=ALL.debian, unanswered=("x",)), True, 1),
        (Outdated(debian=(ImageUpdates("i", (Update("tzdata", "1", "2", security=False),)),)), False, 0),
        (Outdated(debian=ALL.debian[1:], unanswered=("x",)), False, 3),
    ],
)
def test_insecure_and_exit_code(found: Outdated, insecure: bool, exit_code: int) -> None:
    assert (found.insecure, found.exit_code) == (insecure, exit_code)
