"""What this machine's network asks of a build: CA bundle, package indexes, proxies, apt's settings, wheels at hand.

`gather` finds them in the usual variables and files; `Network.write_secrets` lays them as files in the user's cache
folder, where BuildKit reads them as secrets; `link_wheels` puts wheels of pip's local folders into docker/wheels.
Nothing of it stays in a layer, and proxies' values never stand on a command line.
"""

import configparser
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
APT_KEYS = re.compile(r"^Acquire::(https?::|Check-|Retries|ForceIPv4|ForceIPv6)", re.IGNORECASE)
PUBLIC_ARCHIVE = ("deb.debian.org", "security.debian.org", "ftp.debian.org")


@dataclass(frozen=True)
class PackageIndex:
    """Where pip takes packages from; folders of wheels on this machine apart, for they must travel into the build."""

    url: str | None = None
    extra: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    trusted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.url or self.extra or self.links or self.trusted)

    def uv_toml(self) -> str:
        """The same as a configuration of uv; hashes decide which file is taken, so every index may be asked."""
        lines = [f"find-links = {_array(self.links)}"] if self.links else []
        if self.trusted:
            lines.append(f"allow-insecure-host = {_array(self.trusted)}")
        for url in self.extra:
            lines += ["[[index]]", f'url = "{url}"']
        if self.url:
            lines += ["[[index]]", f'url = "{self.url}"', "default = true"]
        return "\n".join(lines) + "\n"

    def pip_conf(self) -> str:
        """The same as a configuration of pip."""
        settings = {
            "index-url": self.url or "",
            "extra-index-url": " ".join(self.extra),
            "find-links": " ".join(self.links),
            "trusted-host": " ".join(self.trusted),
        }
        return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items() if value)


def _array(values: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


@dataclass(frozen=True)
class Network:
    """What `gather` found; texts are the contents of secrets, empty where this machine has nothing special."""

    ca: Path | None
    index: PackageIndex
    proxies: tuple[str, ...]
    apt: str
    apt_auth: str
    apt_sources: str

    def secrets(self) -> dict[str, str | Path]:
        """The secrets of a build by id: a file to copy, or a text."""
        found: dict[str, str | Path] = {}
        if self.ca:
            found["ca"] = self.ca
        if self.index:
            found["uv"] = self.index.uv_toml()
            found["pip"] = self.index.pip_conf()
        apt = self.apt
        if self.apt_auth:
            found["apt-auth"] = self.apt_auth
            apt += 'Dir::Etc::Netrc "/run/secrets/apt-auth";\n'
        if self.apt_sources:
            found["apt-sources"] = self.apt_sources
            apt += 'Dir::Etc::SourceList "/run/secrets/apt-sources";\nDir::Etc::SourceParts "/dev/null";\n'
        if apt:
            if self.ca:
                apt += 'Acquire::https::CaInfo "/run/secrets/ca";\n'
            found["apt"] = apt
        return found

    def write_secrets(self, folder: Path) -> dict[str, Path]:
        """Writes the secrets into `folder`, readable by this user only, and gives their paths by id."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        paths = {}
        for name, value in self.secrets().items():
            paths[name] = folder / name
            content = value.read_bytes() if isinstance(value, Path) else value.encode()
            # Rewritten only when it differs, by rename, so that a build that runs beside this one reads whole files.
            if not paths[name].exists() or paths[name].read_bytes() != content:
                new = folder / f".{name}.{os.getpid()}"
                with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(content)
                new.replace(paths[name])
        return paths


def gather(environ: Mapping[str, str]) -> Network:
    """Reads this machine's settings from the variables given and from the usual files."""
    ca = next((Path(environ[name]) for name in CA_VARIABLES if name in environ and Path(environ[name]).is_file()), None)
    proxies = [name for name in PROXY_VARIABLES if name in environ]
    proxies += [name.lower() for name in PROXY_VARIABLES if name.lower() in environ and name not in environ]
    return Network(
        ca=ca,
        index=package_index(environ, _pip_settings(environ)),
        proxies=tuple(proxies),
        apt=_apt_settings(),
        apt_auth=_apt_auth(),
        apt_sources=private_sources(_apt_source_files()),
    )


def package_index(environ: Mapping[str, str], settings: Mapping[str, str]) -> PackageIndex:
    """pip's and uv's variables before pip's files; `file:` indexes are left out, for a build can't see this machine."""

    def setting(*names: str) -> list[str]:
        for name in names:
            key = name.removeprefix("PIP_").lower().replace("_", "-")
            value = environ.get(name) or (settings.get(key) if name.startswith("PIP_") else None)
            if value:
                return value.split()
        return []

    def remote(urls: Iterable[str]) -> list[str]:
        return [url for url in urls if url.startswith(("http://", "https://"))]

    links = setting("UV_FIND_LINKS", "PIP_FIND_LINKS")
    folders = [Path(unquote(urlsplit(link).path)) for link in links if not link.startswith(("http://", "https://"))]
    urls = remote(setting("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"))
    return PackageIndex(
        url=urls[0] if urls else None,
        extra=tuple(remote(setting("UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"))),
        links=tuple(remote(links)),
        folders=tuple(folder for folder in folders if folder.is_dir()),
        trusted=tuple(setting("UV_INSECURE_HOST", "PIP_TRUSTED_HOST")),
    )


def _pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    files = [environ["PIP_CONFIG_FILE"]] if environ.get("PIP_CONFIG_FILE") else list(PIP_FILES)
    parser = configparser.RawConfigParser(strict=False)
    parser.read([Path(file).expanduser() for file in files])
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    return found


def _apt_settings() -> str:
    """apt's proxies, certificates and checks as this machine has them; empty where it has no apt."""
    if shutil.which("apt-config") is None:
        return ""
    dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True).stdout
    kept = [line for line in dump.splitlines() if APT_KEYS.match(line) and not line.endswith('"";')]
    # A file that only this machine has, such as a client certificate, can't be named inside a build.
    return "".join(f"{line}\n" for line in kept if '"/' not in line)


def _apt_auth() -> str:
    files = [Path("/etc/apt/auth.conf"), *sorted(Path("/etc/apt/auth.conf.d").glob("*.conf"))]
    return "".join(file.read_text() for file in files if file.is_file() and os.access(file, os.R_OK))


def _apt_source_files() -> list[tuple[str, str]]:
    folder = Path("/etc/apt/sources.list.d")
    files = [Path("/etc/apt/sources.list"), *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]
    return [(file.name, file.read_text()) for file in files if file.is_file()]


def private_sources(files: Sequence[tuple[str, str]], suite: str = "bookworm") -> str:
    """This machine's sources for the base's suite, as one-line entries, if a mirror serves them; else empty.

    The public archive needs no telling, and another suite's packages would not fit the base.
    """
    entries: list[str] = []
    for name, text in files:
        entries += _deb822_entries(text) if name.endswith(".sources") else _line_entries(text)
    fitting = [entry for entry in entries if entry.split()[2].split("-")[0].split("/")[0] == suite]
    if all(urlsplit(entry.split()[1]).hostname in PUBLIC_ARCHIVE for entry in fitting):
        return ""
    return "".join(f"{entry}\n" for entry in fitting)


def _line_entries(text: str) -> list[str]:
    plain = (re.sub(r"\[[^]]*\]\s*", "", line.strip()) for line in text.splitlines())
    return [line for line in plain if line.startswith("deb ") and len(line.split()) >= 4]


def _deb822_entries(text: str) -> list[str]:
    entries = []
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", paragraph, flags=re.MULTILINE))
        if "deb" not in fields.get("Types", "").split() or fields.get("Enabled", "yes").lower() == "no":
            continue
        for uri in fields.get("URIs", "").split():
            for suite in fields.get("Suites", "").split():
                entries.append(f"deb {uri} {suite} {fields.get('Components', '')}".strip())
    return [entry for entry in entries if len(entry.split()) >= 4]


def mirror_of(sources: str) -> str | None:
    """The Debian mirror, not the security one, that `private_sources` names."""
    for line in sources.splitlines():
        _, uri, suite, *_ = line.split()
        if "-" not in suite and "/" not in suite:
            return uri
    return None


def wanted_wheels(folders: Sequence[Path], lock_texts: Iterable[str]) -> list[Path]:
    """The wheels of those folders whose name and version a lock names; its hash is checked when it is installed."""
    named = set()
    for text in lock_texts:
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ \\]+)", text, flags=re.MULTILINE):
            named.add((re.sub(r"[-_.]+", "-", name).lower(), version))
    wheels = []
    for folder in folders:
        for wheel in sorted(folder.glob("*.whl")):
            name, version = wheel.name.split("-")[:2]
            if (re.sub(r"[-_.]+", "-", name).lower(), version) in named:
                wheels.append(wheel)
    return wheels


def link_wheels(wheels: Sequence[Path], folder: Path) -> None:
    """Puts wheels into the build context, as hard links where the file system allows."""
    for wheel in wheels:
        target = folder / wheel.name
        if target.exists() and target.stat().st_size == wheel.stat().st_size:
            continue
        target.unlink(missing_ok=True)
        try:
            os.link(wheel, target)
        except OSError:
            shutil.copyfile(wheel, target)
