"""Known vulnerabilities of packages, found by pip-audit. A package that its service does not know may be vulnerable."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from berth.common.errors import UserError
from berth.common.http import without_password
from berth.images.locks.locked_packages import LockedPackage, some
from berth.images.network.build_network import Network

_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Vulnerable:
    """A package with a known vulnerability. ids: of the vulnerability, aliases last; fixed: the versions that fix it.

    images, profiles: whose locks have it, as in LockedPackage.
    """

    name: str
    version: str
    ids: tuple[str, ...]
    fixed: tuple[str, ...]
    images: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit of `packages` packages; unknown: how many could not be checked; unanswered: why."""

    vulnerable: tuple[Vulnerable, ...]
    packages: int
    unknown: int = 0
    unanswered: str = ""


def ask_advisories(packages: Sequence[LockedPackage], network: Network, osv_url: str | None = None) -> Audit:
    """Audits all packages with pip-audit.

    A requirements file can name a package once only, so packages with several versions need several rounds.
    """
    rounds: list[dict[str, str]] = []
    holders: dict[tuple[str, str], list[LockedPackage]] = {}
    for package in packages:
        holders.setdefault((package.name, Version(package.version).public), []).append(package)
    for name, version in sorted(holders):
        fitting = next((each for each in rounds if name not in each), None)
        if fitting is None:
            rounds.append(fitting := {})
        fitting[name] = version
    found: list[Vulnerable] = []
    unknown: list[str] = []
    for number, each in enumerate(rounds):
        try:
            vulnerable, skipped = parse_audit(_run_audit(each, network, osv_url))
        except UserError as error:
            unasked = sum(map(len, rounds[number:]))
            return Audit(tuple(found), len(holders), len(unknown) + unasked, str(error))
        found += [_with_holders(each, holders.get((each.name, each.version), ())) for each in vulnerable]
        unknown += skipped
    if not unknown:
        return Audit(tuple(found), len(holders))
    why = (
        f"Vulnerabilities of {len(unknown)} of {len(holders)} packages are unknown, so they may be insecure: the "
        f"advisory service has no answer for {some(unknown)}; run the command where https://pypi.org/pypi answers for "
        "them, or name a service with OSV's API with --osv-url."
    )
    return Audit(tuple(found), len(holders), len(unknown), why)


def _with_holders(vulnerable: Vulnerable, holders: Sequence[LockedPackage]) -> Vulnerable:
    return replace(
        vulnerable,
        images=tuple(dict.fromkeys(image for each in holders for image in each.images)),
        profiles=tuple(dict.fromkeys(profile for each in holders for profile in each.profiles)),
    )


def parse_audit(answer: Mapping[str, Any]) -> tuple[list[Vulnerable], list[str]]:
    """The vulnerable packages in pip-audit's JSON, and the names of those that it skipped."""
    found, unknown = [], []
    for each in answer["dependencies"]:
        if "skip_reason" in each:
            unknown.append(str(each["name"]))
        for vulnerability in each.get("vulns", []):
            ids = (str(vulnerability["id"]), *sorted(map(str, vulnerability.get("aliases", []))))
            found.append(
                Vulnerable(each["name"], each["version"], ids, tuple(map(str, vulnerability.get("fix_versions", []))))
            )
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
            result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise UserError(_no_advisories(f"no end within {_TIMEOUT_S} s")) from None
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "dependencies" not in answer:
        if "No module named pip_audit" in result.stderr:
            raise UserError("pip-audit, which looks up vulnerabilities, is missing: `make setup` installs it.")
        raise UserError(_no_advisories(short_reason(result.stderr) or f"exit code {result.returncode}"))
    return answer


def short_reason(output: str) -> str:
    """The unreachable host in pip-audit's last line if it names one, else that line."""
    last = (without_password(output).strip().splitlines() or [""])[-1].strip()
    host = re.search(r"host='([^']+)'", last)
    return f"{host[1]} can't be reached" if host else last[:300]


def _no_advisories(reason: str) -> str:
    return (
        f"Vulnerabilities are unknown, so packages may be insecure: pip-audit got no answer ({reason}); run the "
        "command where its service answers, or name a service with OSV's API with --osv-url."
    )
