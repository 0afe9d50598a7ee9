"""Newer releases and known vulnerabilities: requests, answers, and services that do not answer."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from requests.exceptions import ConnectionError
from rich.console import Console

from berth.common.errors import UserError
from berth.common.kept import Kept
from berth.images.inspect import advisories, outdated, releases
from berth.images.inspect.advisories import Audit, Vulnerable
from berth.images.inspect.debian import Update
from berth.images.inspect.outdated import ImageUpdates, Outdated, Services
from berth.images.inspect.releases import Newer
from berth.images.locks import locked_packages
from berth.images.locks.index_metadata import parse_project
from berth.images.locks.locked_packages import LockedPackage
from berth.images.network.build_network import Network, PackageIndex
from berth.images.pins import pins_file
from tests.doubles.http_server import serving
from tests.doubles.index_and_advisories import IndexAndAdvisoriesDouble

PINS = pins_file.load()
BOTH = ("train", "serve")
RICH = LockedPackage("rich", "14.0.0", ("serve",), ("cpu",), pinned=False)
TORCH = LockedPackage("torch", "2.13.0+cpu", BOTH, ("cpu",), pinned=True)
OLD_TORCH = LockedPackage("torch", "2.5.1", BOTH, ("cu124",), pinned=True)


def file(name: str, python: str | None = ">=3.8", yanked: bool | str = False) -> dict[str, Any]:
    return {"filename": name, "requires-python": python, "yanked": yanked}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the double; its index has rich and torch, and it knows no vulnerability."""
    releases = {
        "rich": [file("rich-15.0.0-py3-none-any.whl")],
        "torch": [file("torch-2.13.0-cp311-cp311-linux_x86_64.whl")],
    }
    for name, value in {"releases": releases, "vulnerable": {}, "asked": [], "status": 200, "body": None}.items():
        monkeypatch.setattr(IndexAndAdvisoriesDouble, name, value)
    with serving(IndexAndAdvisoriesDouble) as address:
        yield address


def network(url: str, *extra: str) -> Network:
    return Network(None, PackageIndex(url=url, extra=extra), (), "", "", "")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a-1.9.tar.gz", "a-1.10-py3-none-any.whl"], "1.10"),
        (["a-1.0.tar.gz", "a-2.0rc1.tar.gz", "a-2.0.dev3.tar.gz"], "1.0"),
        (["a-1.0.exe", "a.tar.gz", "a-1.0-not-a.whl", ""], ""),
        ([], ""),
    ],
)
def test_newest_release_is_the_highest_final_one(files: list[str], expected: str) -> None:
    assert releases.newest(parse_project({"files": [file(name) for name in files]}), "3.11") == expected


def test_newest_skips_yanked_files_and_other_pythons() -> None:
    files = [file("a-1.0.tar.gz", None), file("a-2.0.tar.gz", ">=3.12"), file("a-3.0.tar.gz", yanked="broken")]
    files += [file("a-1.5.tar.gz", ">=3.11.4")]
    assert releases.newest(parse_project({"files": files}), "3.11") == "1.5"
    files += [file("a-1.6.tar.gz", "three")]  # invalid, so pip ignores it
    assert releases.newest(parse_project({"files": files}), "3.11") == "1.6"


@pytest.mark.parametrize(
    ("candidate", "version", "expected"),
    [
        ("2.13.0", "2.13.0+cpu", False),
        ("2.13.1", "2.13.0+cpu", True),
        ("1.9", "1.10", False),
        ("2.9.0.post1", "2.9.0.post0", True),
        ("", "1", False),
    ],
)
def test_is_newer(candidate: str, version: str, expected: bool) -> None:
    assert releases.is_newer(candidate, version) is expected


def test_packages_of_lists_each_version_once() -> None:
    texts = {
        "build.txt": "uv==0.9.30 \\\n    --hash=sha256:aa\n",
        "cpu/deps-serve.txt": "# made\nrich==15.0.0 \\\n    --hash=sha256:bb\n",
        "cu124/deps-train.txt": "rich==15.0.0\ntransformers==5.15.0\n",
        "cu130/nccl.txt": "nvidia-nccl-cu13==2.29.7\n",
        "cpu/openmpi.txt": "mpi4py==4.1.2\n",
        "cpu/pytorch.txt": "torch==2.13.0+cpu\n",
        "debian/cpu.txt": "libc6 2.36-9\n",
    }
    assert locked_packages.packages_of(PINS, ["cpu", "cu124"], texts) == [
        LockedPackage("mpi4py", "4.1.2", ("train",), ("cpu",), pinned=True),
        LockedPackage("rich", "15.0.0", BOTH, ("cpu", "cu124"), pinned=False),
        LockedPackage("torch", "2.13.0+cpu", BOTH, ("cpu",), pinned=True),
        LockedPackage("transformers", "5.15.0", ("train",), ("cu124",), pinned=True),
        LockedPackage("uv", "0.9.30", (), (), pinned=True),
    ]
    assert locked_packages.packages_of(PINS, ["cu130"], texts)[0] == LockedPackage(
        "nvidia-nccl-cu13", "2.29.7", BOTH, ("cu130",), pinned=True
    )


def test_packages_of_uses_the_higher_layers_version() -> None:
    texts = {
        "cpu/pytorch.txt": "fsspec==2026.9.0\ntorch==2.13.0+cpu\n",
        "cpu/deps-train.txt": "transformers==5.23.0\n",
        "cpu-hf4/pytorch.txt": "fsspec==2026.9.0\ntorch==2.13.0+cpu\n",
        "cpu-hf4/deps-train.txt": "fsspec==2023.9.2\n",
    }
    assert locked_packages.packages_of(PINS, ["cpu", "cpu-hf4"], texts) == [
        LockedPackage("fsspec", "2023.9.2", ("train",), ("cpu-hf4",), pinned=False),
        LockedPackage("fsspec", "2026.9.0", BOTH, ("cpu",), pinned=False),
        LockedPackage("torch", "2.13.0+cpu", BOTH, ("cpu", "cpu-hf4"), pinned=True),
        LockedPackage("transformers", "5.23.0", ("train",), ("cpu",), pinned=True),
    ]


def test_index_is_asked_once_per_name(service: str) -> None:
    newer, silent = releases.ask_index([RICH, TORCH, OLD_TORCH], network(f"{service}/simple/"), "3.11")
    assert newer == [Newer(RICH, "15.0.0"), Newer(OLD_TORCH, "2.13.0")]
    assert silent == []
    assert sorted(IndexAndAdvisoriesDouble.asked) == ["/simple/rich/", "/simple/torch/"]


def test_extra_index_answers_for_the_main_one(service: str) -> None:
    IndexAndAdvisoriesDouble.status = 200
    found = releases.ask_index([RICH], network("http://127.0.0.1:9/simple", f"{service}/more"), "3.11")
    assert found == ([Newer(RICH, "15.0.0")], [])


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (503, None, "503 Service Unavailable"),
        (200, b"<!DOCTYPE html>", "the answer is not JSON"),
        (200, b"[1]", "the answer is not JSON"),
        (200, b'{"files": []}', "no release for this Python"),
    ],
)
def test_unusable_answer_of_index_is_reported(status: int, body: bytes | None, reason: str, service: str) -> None:
    IndexAndAdvisoriesDouble.status, IndexAndAdvisoriesDouble.body = status, body
    assert releases.ask_index([RICH], network(f"{service}/simple"), "3.11") == (
        [],
        [
            f"Whether rich has a newer release is unknown: {service}/simple answers: {reason}; check pip's index-url, "
            "and that it answers with JSON (PEP 691)."
        ],
    )


def test_unreachable_index_is_named_without_password() -> None:
    many = [replace(RICH, name=f"p{number}") for number in range(9)]
    _, silent = releases.ask_index(many, network("http://user:secret@127.0.0.1:9/simple"), "3.11")
    assert silent == [
        "Whether p0, p1, p2, p3, p4, p5, p6, p7 and 1 more has a newer release is unknown: http://127.0.0.1:9/simple "
        "answers: Connection refused; check pip's index-url, and that it answers with JSON (PEP 691)."
    ]


def advisory(name: str, fixed: str) -> dict[str, Any]:
    events = [{"introduced": "0"}, {"fixed": fixed}]
    affected = {"package": {"name": name, "ecosystem": "PyPI"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    return {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "summary": "bad", "affected": [affected]}


def test_vulnerabilities_of_every_version_are_found(service: str) -> None:
    IndexAndAdvisoriesDouble.vulnerable[("torch", "2.5.1")] = advisory("torch", "2.6.0")
    found = advisories.ask_advisories([RICH, TORCH, OLD_TORCH], network(""), f"{service}/v1/query")
    torch = Vulnerable("torch", "2.5.1", ("PYSEC-2026-1", "CVE-2026-1"), ("2.6.0",), BOTH, ("cu124",))
    assert found == Audit((torch,), 3)
    # Advisories don't have build suffixes such as +cpu.
    assert sorted(IndexAndAdvisoriesDouble.asked) == ["rich 14.0.0", "torch 2.13.0", "torch 2.5.1"]


@pytest.mark.parametrize(("status", "body"), [(404, None), (500, None), (200, b"<html>")])
def test_silent_advisory_service_is_reported(status: int, body: bytes | None, service: str) -> None:
    IndexAndAdvisoriesDouble.status, IndexAndAdvisoriesDouble.body = status, body
    found = advisories.ask_advisories([RICH], network(""), f"{service}/v1/query")
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
    assert advisories.ask_advisories([RICH, TORCH], network("")) == Audit(
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
    found = advisories.ask_advisories(several, network(""))
    assert (found.packages, found.unknown) == (3, 3)
    assert "has no answer for rich; run" in found.unanswered


def test_lost_engine_is_reported_as_unknown_updates() -> None:
    def lost() -> NoReturn:
        raise ConnectionError("Connection reset by peer")

    found = outdated._ask_archive("berth-serve:cpu", Services(network(""), connect=lost))
    assert isinstance(found, str)
    assert found.startswith(
        "Debian's updates of berth-serve:cpu are not known: The connection to the Docker engine broke"
    )


def test_missing_locks_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no locks in"):
        outdated.find_outdated(PINS, ["cpu"], Services(network("")), locks=tmp_path)


def test_outdated_reports_unanswered_and_unasked(service: str, tmp_path: Path) -> None:
    (tmp_path / "cu130").mkdir()
    (tmp_path / "cu130" / "deps-serve.txt").write_text("rich==14.0.0\n")

    def no_engine() -> NoReturn:
        raise UserError("no Docker engine answers: run `sh docker/engine.sh`.")

    found = outdated.find_outdated(
        PINS,
        ["cu130"],
        Services(network(f"{service}/simple"), osv_url=f"{service}/v1/query", hub=service, connect=no_engine),
        images=["berth-serve:cu130"],
        locks=tmp_path,
    )
    assert found == Outdated(
        newer=(Newer(replace(RICH, profiles=("cu130",)), "15.0.0"),),
        unanswered=(
            "Debian's updates of berth-serve:cu130 are not known: no Docker engine answers: run `sh docker/engine.sh`.",
        ),
        unasked=(
            f"Releases of efa {PINS.profile('cu130').files['efa'].version} are not checked, because "
            "no index lists it: see its publisher's site.",
            f"Whether the base {PINS.base_image.partition('@')[0]} has a newer release is not known: {service} answers "
            "404 Not Found.",
        ),
        packages=1,
    )
    assert not found.insecure


ALL = Outdated(
    (Newer(TORCH, "2.15.0"), Newer(RICH, "15.0.0")),
    (Vulnerable("rich", "14.0.0", ("PYSEC-1",), (), ("serve",), ("cpu",)),),
    (
        ImageUpdates("berth-serve:cpu", (Update("libc6", "2.36-9", "2.36-10", security=True),)),
        ImageUpdates("berth-train:cpu", ()),
    ),
    ("Vulnerabilities of x are not known.",),
    ("The base image is not asked for.",),
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
        "docker/pins.toml",
        "locks",
    ):
        assert expected in text
    assert text.rstrip().endswith(
        "The base image is not asked for.\nVulnerabilities of x are not known.\n"
        "vulnerable packages: 1, security updates of Debian: 1, newer releases: 2; incomplete, because some answers "
        "are missing: see above."
    )
    tools = Outdated(newer=(Newer(LockedPackage("uv", "0.9.30", (), (), pinned=True), "0.9.31"),))
    console.print(outdated.render(tools))
    assert "the build's tools" in console.export_text()
    assert json.loads(json.dumps(ALL.as_dict()))["insecure"] is True


@pytest.mark.parametrize(
    ("packages", "unaudited", "verdict"),
    [
        (221, 0, "vulnerable packages: 0, security"),
        (221, 12, "vulnerable packages: 0 (12 of 221 not known), security"),
        (221, 221, "vulnerable packages: not known (221 of 221), security"),
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
        (Outdated(newer=ALL.newer, debian=ALL.debian[1:], unanswered=("x",)), False, 3),
        (Outdated(newer=ALL.newer), False, 0),
    ],
)
def test_insecure_and_exit_code(found: Outdated, insecure: bool, exit_code: int) -> None:
    assert (found.insecure, found.exit_code) == (insecure, exit_code)


class AskedTwice:
    """Fakes of Debian's archive and pip-audit that record each request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: list[str] = []
        monkeypatch.setattr(advisories, "_run_audit", self._audit)
        monkeypatch.setattr(outdated.debian, "ask_archive", self._archive)

    def _audit(self, versions: dict[str, str], *_: object) -> dict[str, Any]:
        self.times.append("audit")
        known = [{"id": "PYSEC-1", "fix_versions": ["15.0"]}]
        return {"dependencies": [{"name": "rich", "version": "14.0.0", "vulns": known}]}

    def _archive(self, *_: object) -> list[Update]:
        self.times.append("archive")
        return [Update("libc6", "1", "2", security=True)]


def test_answers_are_cached_for_an_hour(service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = AskedTwice(monkeypatch)
    (tmp_path / "locks/cpu").mkdir(parents=True)
    (tmp_path / "locks/cpu/deps-serve.txt").write_text("rich==14.0.0\nunheard-of==1.0\n")
    image = SimpleNamespace(id="sha256:1")
    client: Any = SimpleNamespace(images=SimpleNamespace(get=lambda name: image))
    services = Services(
        network(f"{service}/simple"), connect=lambda: client, answers=Kept(tmp_path / "answers", 9, 3600)
    )
    find = partial(
        outdated.find_outdated, PINS, ["cpu"], services, images=["berth-serve:cpu"], locks=tmp_path / "locks"
    )
    first = find()
    assert first.insecure
    IndexAndAdvisoriesDouble.asked.clear()
    assert find() == first
    assert sorted(asked.times) == ["archive", "audit"]
    assert IndexAndAdvisoriesDouble.asked == ["/simple/unheard-of/"], "a failed request is not cached"
    image.id = "sha256:2"
    find()
    assert asked.times.count("archive") == 2, "another image is a separate request"
