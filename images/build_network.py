"""What this machine's network asks of a build: CA bundle, package indexes, proxies, apt's settings, wheels at hand.

`gather` finds them in the usual variables and files; `Network.write_secrets` lays them as files in the user's cache
folder, where BuildKit reads them as secrets; `wanted_wheels` are those of pip's local folders that a build takes along.
Nothing of it stays in a layer, and proxies' values never stand on a command line.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from berth.common.files import atomic_write, explain_os_errors, is_being_written
from berth.images import apt, pip_settings

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")


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
        settings = self.apt
        if self.apt_auth:
            found["apt-auth"] = self.apt_auth
            settings += 'Dir::Etc::Netrc "/run/secrets/apt-auth";\n'
        if self.apt_sources:
            found["apt-sources"] = self.apt_sources
        if self.ca and (settings or self.apt_sources):
            settings += 'Acquire::https::CaInfo "/run/secrets/ca";\n'
        if settings:
            found["apt"] = settings
        return found

    def write_secrets(self, folder: Path, *, keep_others: bool = False) -> dict[str, Path]:
        """Writes the secrets into `folder`, readable by this user only, and gives their paths by id.

        Those of earlier settings go, unless `keep_others` says not to touch them, for nobody would look for a password
        there. UserError where the disk refuses.
        """
        contents = {
            name: value.read_bytes() if isinstance(value, Path) else value.encode()
            for name, value in self.secrets().items()
        }
        paths = {name: folder / name for name in contents}
        with explain_os_errors(folder, "what a build needs of the network"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for path in folder.iterdir():
                if not keep_others and path.name not in contents and not is_being_written(path):
                    path.unlink(missing_ok=True)
            for name, path in paths.items():
                # Rewritten only when it differs, by rename: a build that runs next to this one reads whole files.
                if not path.exists() or path.read_bytes() != contents[name]:
                    with atomic_write(path) as new:
                        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                            file.write(contents[name])
        return paths


def gather(environ: Mapping[str, str]) -> Network:
    """Reads this machine's settings from the variables given and from the usual files."""
    pip = pip_settings.of_files(environ)
    bundles = [*(environ.get(name, "") for name in CA_VARIABLES), pip.get("cert", ""), *_system_bundle()]
    ca = next((Path(bundle) for bundle in bundles if bundle and Path(bundle).is_file()), None)
    proxies = [name for name in PROXY_VARIABLES if name in environ]
    proxies += [name.lower() for name in PROXY_VARIABLES if name.lower() in environ and name not in environ]
    return Network(
        ca=ca,
        index=package_index(environ, pip),
        proxies=tuple(proxies),
        apt=apt.settings(),
        apt_auth=apt.auth(),
        apt_sources=apt.private_sources(apt.source_files()),
    )


def package_index(environ: Mapping[str, str], settings: Mapping[str, str]) -> PackageIndex:
    """pip's and uv's variables before pip's files; `file:` indexes are left out, for a build can't see this machine."""

    def setting(*names: str) -> list[str]:
        for name in names:
            key = name.removeprefix("PIP_").lower().replace("_", "-")
            value = environ.get(name) or (settings.get(key) if name.startswith("PIP_") else None)
            if value:
                return [word.partition("=")[2] if re.match(r"[\w-]+=https?:", word) else word for word in split(value)]
        return []

    def split(value: str) -> list[str]:
        return value.replace(",", " ").split()

    def remote(urls: Iterable[str]) -> list[str]:
        return [url for url in urls if url.startswith(("http://", "https://"))]

    links = setting("UV_FIND_LINKS", "PIP_FIND_LINKS")
    folders = [Path(unquote(urlsplit(link).path)) for link in links if not link.startswith(("http://", "https://"))]
    urls = remote(setting("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"))
    return PackageIndex(
        url=urls[0] if urls else None,
        extra=tuple(remote(setting("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"))),
        links=tuple(remote(links)),
        folders=tuple(folder for folder in folders if folder.is_dir()),
        trusted=tuple(setting("UV_INSECURE_HOST", "PIP_TRUSTED_HOST")),
    )


def without_password(text: str) -> str:
    """A text with the user and password of every URL in it left out, up to the last @ before its path."""
    return re.sub(r"//[^/\s]*@", "//", text)


def innermost(error: BaseException) -> BaseException:
    """What lies at the bottom of an error of requests and urllib3, which wrap each other's."""
    while isinstance(error, RequestException | HTTPError):
        inner = error.__cause__ or error.__context__ or next((a for a in error.args if isinstance(a, Exception)), None)
        if inner is None:
            break
        error = inner
    return error


def in_few_words(error: BaseException | str) -> str:
    """What an error says, on one line and without passwords."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return without_password(" ".join(str(text).split()))[:160].rstrip(".")


def _system_bundle(added: Path = Path("/usr/local/share/ca-certificates")) -> list[str]:
    """The system's bundle, if somebody added a certificate to it; else every base brings the same one."""
    return ["/etc/ssl/certs/ca-certificates.crt"] if any(added.rglob("*.crt")) else []


def wanted_wheels(folders: Sequence[Path], lock_texts: Iterable[str]) -> list[Path]:
    """The wheels of those folders whose name and version a lock names; its hash is checked when it is installed."""
    named = set()
    for text in lock_texts:
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ \\]+)", text, flags=re.MULTILINE):
            named.add((re.sub(r"[-_.]+", "-", name).lower(), version))
    wheels = []
    for folder in folders:
        for wheel in sorted(folder.glob("*-*-*.whl")):
            name, version = wheel.name.split("-")[:2]
            if (re.sub(r"[-_.]+", "-", name).lower(), version) in named:
                wheels.append(wheel)
    return wheels
