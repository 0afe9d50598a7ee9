"""What has become old: Python packages with newer releases, known vulnerabilities, and Debian's security updates.

`find_outdated` asks the package index that pip asks, the advisories that pip-audit reads, and Debian's archive through
debian.py; whatever gives no answer is a sentence in `unanswered`, never an all-clear. `wanted`, `newest`, `advisories`
and `render` are pure. Nothing is changed: `python build.py pins` makes the locks again.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import requests
from docker import DockerClient
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from berth.images import engine, pins
from berth.images.errors import UserError
from berth.images.inventory import debian
from berth.images.inventory.debian import Update
from berth.images.locks import LOCKS, cuda_requirements
from berth.images.network import Network, without_password

PYPI = "https://pypi.org/simple"
_SIMPLE = "application/vnd.pypi.simple.v1+json"  # PEP 691
_TIMEOUT_S = 20
_AUDIT_TIMEOUT_S = 600
_AT_ONCE = 8
_NAMED = 8  # in a sentence


@dataclass(frozen=True, slots=True)
class Locked:
    """A package in one version; `profiles` are those whose locks have it, `build` for tools of the build.

    pinned: whether docker/pins.toml names the version, so that a newer one is chosen there; else the locks alone do.
    """

    name: str
    version: str
    profiles: tuple[str, ...]
    pinned: bool


@dataclass(frozen=True, slots=True)
class Newer:
    """A package whose index has a newer release for the images' Python."""

    locked: Locked
    newest: str


@dataclass(frozen=True, slots=True)
class Vulnerable:
    """A package with a known vulnerability: its names, its own first, and the versions that mend it."""

    name: str
    version: str
    ids: tuple[str, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImageUpdates:
    """What Debian's archive has newer than an image."""

    image: str
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Outdated:
    """All that was found. `unanswered` are sentences on what should be known and is not, and what to do; `unasked` on
    what nobody can be asked for.
    """

    newer: tuple[Newer, ...] = ()
    vulnerable: tuple[Vulnerable, ...] = ()
    debian: tuple[ImageUpdates, ...] = ()
    unanswered: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()

    @property
    def insecure(self) -> bool:
        """Whether there is a known vulnerability, or an update of Debian's security archive."""
        return bool(self.vulnerable) or any(update.security for each in self.debian for update in each.updates)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self) | {"insecure": self.insecure}


def find_outdated(
    kit: pins.Pins,
    profiles: Sequence[str],
    network: Network,
    *,
    images: Sequence[str] = (),
    connect: Callable[[], DockerClient] = engine.connect,
    osv_url: str | None = None,
    locks: Path = LOCKS,
    step: Callable[[str], None] = lambda done: None,
) -> Outdated:
    """Asks about the locks of these profiles and about these images, of the engine that `connect` gives.

    osv_url: a service with OSV's API to ask for advisories instead of PyPI. step: called with what is being done.
    Raises UserError where there are no locks.
    """
    unasked = [
        f"The base image {kit.base_image.partition('@')[0]} is not asked for: no index lists its releases, see "
        "https://hub.docker.com/_/debian.",
    ]
    chosen = [kit.profile(name) for name in profiles]
    for file in dict.fromkeys(file for profile in chosen for file in profile.files.values()):
        unasked.append(f"{file.part} {file.version} is not asked for: no index lists it, see what its publisher has.")
    packages = wanted(kit, profiles, _lock_texts(locks))
    step(f"asking the package index for {len(packages)} packages")
    newer, silent = ask_index(packages, network, chosen[0].python if chosen else "3.11")
    step("asking for known vulnerabilities")
    vulnerable, unknown = ask_advisories(packages, network, osv_url)
    unanswered = [*silent, *unknown]
    found = []
    for image in images:
        step(f"asking Debian's archive for updates of {image}")
        try:
            found.append(ImageUpdates(image, tuple(debian.ask(connect(), image, network))))
        except UserError as error:
            unanswered.append(f"Debian's updates of {image} are not known: {error}")
    return Outdated(tuple(newer), tuple(vulnerable), tuple(found), tuple(unanswered), tuple(unasked))


def wanted(kit: pins.Pins, profiles: Sequence[str], texts: Mapping[str, str]) -> list[Locked]:
    """Every package of the profiles' locks, by name and version; texts by path, such as deps/serve-cpu.txt."""
    places: dict[tuple[str, str], list[str]] = {}
    for path, text in sorted(texts.items()):
        profile = "build" if path.startswith("build/") else re.split("[/-]", path.removesuffix(".txt"))[-1]
        if profile not in (*profiles, "build"):
            continue
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ \\\n]+)", text, flags=re.MULTILINE):
            places.setdefault((name, version), []).append(profile)
    named = {*kit.build_tools}
    for profile_name in profiles:
        profile = kit.profile(profile_name)
        named |= {*profile.packages, *(each.partition("==")[0] for each in cuda_requirements(profile))}
    return [Locked(*key, tuple(dict.fromkeys(where)), key[0] in named) for key, where in sorted(places.items())]


def newest(answer: Mapping[str, Any], python: str) -> str:
    """The newest release of an index's answer (PEP 691) that is final, not yanked, and for this Python; else empty."""
    found: set[Version] = set()
    for file in answer.get("files", []):
        name = str(file.get("filename", ""))
        try:
            version = parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
            fits = SpecifierSet(file.get("requires-python") or "").contains(f"{python}.99")
        except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion, InvalidSpecifier):
            continue  # files of old forms, such as .exe
        if fits and not file.get("yanked") and not version.is_prerelease:
            found.add(version)
    return str(max(found)) if found else ""


def is_newer(candidate: str, version: str) -> bool:
    """Whether a release is newer than a version, whose build, such as +cpu, does not count."""
    return bool(candidate) and Version(Version(candidate).public) > Version(Version(version).public)


def ask_index(packages: Sequence[Locked], network: Network, python: str) -> tuple[list[Newer], list[str]]:
    """The packages with newer releases, and a sentence for what the index says nothing of.

    The index is pip's, and after it pip's further ones; of several that know a package the newest release counts.
    """
    urls = [(network.index.url or PYPI).rstrip("/"), *(url.rstrip("/") for url in network.index.extra)]
    names = sorted({package.name for package in packages})
    found: dict[str, str] = {}
    refusals: dict[str, str] = {}
    with requests.Session() as session, ThreadPoolExecutor(_AT_ONCE) as pool:
        session.headers["Accept"] = _SIMPLE
        session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=_AT_ONCE))

        def ask(name: str) -> tuple[list[str], str]:
            answers = [_ask_one(session, f"{url}/{name}/", network, python) for url in urls]
            return [release for release, _ in answers if release], "; ".join(reason for _, reason in answers if reason)

        for name, (releases, refusal) in zip(names, pool.map(ask, names), strict=True):
            if releases:
                found[name] = str(max(Version(release) for release in releases))
            else:
                refusals[name] = refusal or "no release for this Python"
    newer = [
        Newer(package, found[package.name])
        for package in packages
        if package.name in found and is_newer(found[package.name], package.version)
    ]
    if not refusals:
        return newer, []
    reason = next(iter(refusals.values()))
    return newer, [
        f"Whether {_some(refusals)} has a newer release is not known: {without_password(urls[0])} says: {reason}; look "
        "at pip's index-url, and whether it answers with JSON (PEP 691)."
    ]


def _ask_one(session: requests.Session, url: str, network: Network, python: str) -> tuple[str, str]:
    """The newest release at one address, or why there is none, in a few words."""
    try:
        answer = session.get(url, timeout=_TIMEOUT_S, verify=_verify(url, network))
        if answer.status_code != 200:
            return "", f"{answer.status_code} {answer.reason}"
        found = answer.json()
        return (newest(found, python), "") if isinstance(found, dict) else ("", "no JSON")
    except requests.exceptions.JSONDecodeError:
        return "", "no JSON"
    except requests.RequestException as error:
        return "", type(error).__name__


def _verify(url: str, network: Network) -> bool | str:
    """What the server's certificate is checked by; not at all for a host that pip is told to trust."""
    host = re.sub(r"^\w+://(?:[^@/]*@)?([^/]*).*", r"\1", url)
    if host in network.index.trusted or host.partition(":")[0] in network.index.trusted:
        return False
    return str(network.ca) if network.ca else True


def ask_advisories(
    packages: Sequence[Locked], network: Network, osv_url: str | None = None
) -> tuple[list[Vulnerable], list[str]]:
    """pip-audit's answers for all packages, and a sentence for those that its service does not know.

    One file of requirements holds a package once, so that what profiles have in several versions takes several rounds.
    """
    rounds: list[dict[str, str]] = []
    for name, version in sorted({(package.name, Version(package.version).public) for package in packages}):
        fitting = next((each for each in rounds if name not in each), None)
        if fitting is None:
            rounds.append(fitting := {})
        fitting[name] = version
    found: list[Vulnerable] = []
    unknown: list[str] = []
    for each in rounds:
        try:
            some, skipped = advisories(_run_audit(each, network, osv_url))
        except UserError as error:
            return found, [str(error)]
        found += some
        unknown += skipped
    if not unknown:
        return found, []
    total = sum(len(each) for each in rounds)
    return found, [
        f"Vulnerabilities of {len(unknown)} of {total} packages are not known, which is no all-clear: the advisory "
        f"service has no answer for {_some(unknown)}; run it where https://pypi.org/pypi answers for them, or name a "
        "service with OSV's interface by --osv-url."
    ]


def advisories(answer: Mapping[str, Any]) -> tuple[list[Vulnerable], list[str]]:
    """What pip-audit's JSON says: vulnerable packages, and the names of those that it could not ask about."""
    found, unknown = [], []
    for each in answer["dependencies"]:
        if "skip_reason" in each:
            unknown.append(str(each["name"]))
        for known in each.get("vulns", []):
            ids = (str(known["id"]), *sorted(map(str, known.get("aliases", []))))
            found.append(Vulnerable(each["name"], each["version"], ids, tuple(map(str, known.get("fix_versions", [])))))
    return found, unknown


def _run_audit(versions: Mapping[str, str], network: Network, osv_url: str | None) -> dict[str, Any]:
    service = ["--vulnerability-service", *(["osv", "--osv-url", osv_url] if osv_url else ["pypi"])]
    environment = dict(os.environ)
    if network.ca:
        environment["REQUESTS_CA_BUNDLE"] = str(network.ca)
    with tempfile.TemporaryDirectory(prefix="berth-audit-") as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--requirement", str(requirements)]
        command += ["--format", "json", "--progress-spinner", "off", "--cache-dir", f"{folder}/cache", *service]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_AUDIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise UserError(_no_advisories(f"no end within {_AUDIT_TIMEOUT_S} s")) from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "dependencies" not in answer:
        if "No module named pip_audit" in done.stderr:
            raise UserError("pip-audit, which asks for advisories, is not here: run `make setup`, which brings it.")
        last = (without_password(done.stderr).strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UserError(_no_advisories(last.strip()[:300]))
    return answer


def _no_advisories(reason: str) -> str:
    return (
        f"Vulnerabilities are not known, which is no all-clear: pip-audit got no answer ({reason}); run it where its "
        "service answers, or give the URL of one with OSV's API."
    )


def _lock_texts(locks: Path) -> dict[str, str]:
    """The texts of the locks of Python packages, by path; UserError where there is none."""
    texts = {path.relative_to(locks).as_posix(): path.read_text() for path in sorted(locks.glob("*/*.txt"))}
    if not texts:
        raise UserError(f"there are no locks in {locks}: run `python build.py pins`, which makes them.")
    return texts


def _some(names: Iterable[str]) -> str:
    """The first of some names, and how many more."""
    every = sorted(names)
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more


def render(found: Outdated) -> Group:
    """The tables and what was not asked, for a rich console."""
    parts: list[RenderableType] = []
    if found.vulnerable:
        table = _table("known vulnerabilities", "package", "version", "vulnerability", "mended in")
        for known in found.vulnerable:
            table.add_row(known.name, known.version, ", ".join(known.ids), ", ".join(known.fixed) or "no release yet")
        parts.append(table)
    for each in found.debian:
        if each.updates:
            table = _table(f"{each.image}: newer in Debian's archive", "package", "installed", "candidate", "security")
            for update in each.updates:
                table.add_row(update.name, update.installed, update.candidate, "yes" if update.security else "")
            parts.append(table)
        else:
            parts.append(Text(f"{each.image}: Debian's archive has nothing newer."))
    if found.newer:
        table = _table("newer releases", "package", "version", "newest", "profiles", "chosen by")
        for newer in found.newer:
            chosen = "docker/pins.toml" if newer.locked.pinned else "locks"
            profiles = ", ".join(newer.locked.profiles)
            table.add_row(newer.locked.name, newer.locked.version, newer.newest, profiles, chosen)
        parts.append(table)
        parts.append(Text("Edit docker/pins.toml, then run `python build.py pins`, which renews the locks as well."))
    parts += [Text(sentence, style="bold") for sentence in found.unanswered]
    return Group(*parts, *(Text(sentence) for sentence in found.unasked))


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=Text(title), title_justify="left")
