"""This machine's network settings for a build: CA bundle, package indexes and their logins, proxies, apt's settings.

`gather` asks pip and apt for their settings, and reads those of uv and netrc. `Network.write_secrets` writes them into
files for one command, which BuildKit reads as secrets. They never get into a layer, and no command line has a proxy's
value. Standard library only, for `make setup`.
"""

import netrc
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from berth.common.errors import UserError
from berth.common.files import explain_os_errors, write_private
from berth.images.network import apt
from berth.images.network.pip_settings import read_pip_settings
from berth.images.network.uv_settings import read_uv_settings, with_login

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class PackageIndex:
    """Where pip takes packages from. folders: local folders with wheels, which must be copied into the build. proxy:
    pip's own setting, in addition to the environment's.
    """

    url: str | None = None
    extra: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    trusted: tuple[str, ...] = ()
    proxy: str = ""

    def __bool__(self) -> bool:
        return bool(self.url or self.extra or self.links or self.trusted or self.proxy)

    def uv_toml(self) -> str:
        """The settings as a uv.toml. Hashes decide which file is installed, so every index may be used."""
        lines = [f"find-links = {_array(self.links)}"] if self.links else []
        if self.trusted:
            lines.append(f"allow-insecure-host = {_array(self.trusted)}")
        if self.proxy:
            lines += [f"{name} = {_array([self.proxy])[1:-1]}" for name in ("http-proxy", "https-proxy")]
        for url in self.extra:
            lines += ["[[index]]", f'url = "{url}"']
        if self.url:
            lines += ["[[index]]", f'url = "{self.url}"', "default = true"]
        return "\n".join(lines) + "\n"

    def pip_conf(self) -> str:
        """The settings as a pip.conf, without password prompts."""
        settings = {
            "no-input": "true",
            "index-url": self.url or "",
            "extra-index-url": " ".join(self.extra),
            "find-links": " ".join(self.links),
            "trusted-host": " ".join(self.trusted),
            "proxy": self.proxy,
        }
        return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items() if value)


def _array(values: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


@dataclass(frozen=True)
class Network:
    """The result of `gather`; texts are the contents of secrets, empty if this machine has no such settings."""

    ca: Path | None
    index: PackageIndex
    proxies: tuple[str, ...]
    apt: str
    apt_auth: str
    apt_sources: str

    @property
    def verify(self) -> str | bool:
        """The `verify` argument of requests: the CA bundle, or True for the default one."""
        return str(self.ca) if self.ca else True

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

    def write_secrets(self, folder: Path) -> dict[str, Path]:
        """Writes the secrets into `folder`, readable by this user only; returns their paths by id."""
        paths = {}
        with explain_os_errors(folder, "the network settings of a build"):
            for name, value in self.secrets().items():
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                content = value.read_bytes() if isinstance(value, Path) else value.encode()
                paths[name] = write_private(folder / name, content)
        return paths


def gather(environ: Mapping[str, str]) -> Network:
    """This machine's settings, from `environ` and the usual files; UserError if a file can't be read."""
    pip = read_pip_settings(environ)
    bundles = [*(environ.get(name, "") for name in CA_VARIABLES), pip.get("cert", ""), *_system_bundle()]
    ca = next((path for bundle in bundles if bundle and (path := Path(bundle).expanduser().absolute()).is_file()), None)
    proxies = [name for name in PROXY_VARIABLES if name in environ]
    proxies += [name.lower() for name in PROXY_VARIABLES if name.lower() in environ and name not in environ]
    return Network(
        ca=ca,
        index=with_logins(package_index(read_uv_settings(environ), pip), netrc_logins(environ)),
        proxies=tuple(proxies),
        apt=apt.settings(),
        apt_auth=apt.auth(),
        apt_sources=apt.private_sources(apt.source_files()),
    )


def package_index(uv: Mapping[str, Sequence[str]], pip: Mapping[str, str]) -> PackageIndex:
    """uv's settings, else pip's, for each option. `file:` indexes are skipped, because a build can't read them."""

    def setting(name: str) -> Sequence[str]:
        return uv.get(name) or pip.get(name, "").split()

    def remote(urls: Iterable[str]) -> list[str]:
        return [url for url in urls if url.startswith(("http://", "https://"))]

    links = setting("find-links")
    folders = [_folder(link) for link in links if not remote([link])]
    urls = remote(setting("index-url"))
    return PackageIndex(
        url=urls[0] if urls else None,
        extra=tuple(remote(setting("extra-index-url"))),
        links=tuple(remote(links)),
        folders=tuple(folder for folder in folders if folder.is_dir()),
        trusted=tuple(setting("trusted-host")),
        proxy=pip.get("proxy", ""),
    )


def _folder(link: str) -> Path:
    """The folder of a local find-links entry; a relative path starts at the working directory."""
    path = url2pathname(urlsplit(link).path) if link.startswith("file:") else link
    return Path(path).expanduser().absolute()


Logins = Callable[[str], tuple[str, str] | None]
"""The user and password for a host."""


def netrc_logins(environ: Mapping[str, str]) -> Logins:
    """The logins in $NETRC or ~/.netrc. Like pip and uv, ignores a file that can't be read."""
    try:
        file = netrc.netrc(environ.get("NETRC") or Path(environ.get("HOME") or Path.home()) / ".netrc")
    except (OSError, ValueError, netrc.NetrcParseError):
        return lambda _: None

    def login(host: str) -> tuple[str, str] | None:
        found = file.authenticators(host)
        return (found[0], found[2]) if found and found[0] and found[2] else None

    return login


def with_logins(index: PackageIndex, logins: Logins) -> PackageIndex:
    """The index with logins added to URLs that have no password."""

    def url_with_login(url: str) -> str:
        parts = urlsplit(url)
        found = None if parts.password is not None else logins(parts.hostname or "")
        if found is None or unquote(parts.username or found[0]) != found[0]:
            return url
        return with_login(url, *found)

    return replace(
        index,
        url=index.url and url_with_login(index.url),
        extra=tuple(map(url_with_login, index.extra)),
        links=tuple(map(url_with_login, index.links)),
    )


def with_profiles_index(network: Network, url: str, environ: Mapping[str, str]) -> Network:
    """The network, with the profile's torch index as an extra index if netrc has a login for it. A layer passes the URL
    without a login to uv, which takes the login of the same URL from its configuration.
    """
    index = with_logins(PackageIndex(url=url or None), netrc_logins(environ))
    if index.url is None or index.url == url:
        return network
    return replace(network, index=replace(network.index, extra=(*network.index.extra, index.url)))


def _system_bundle(added: Path = Path("/usr/local/share/ca-certificates")) -> list[str]:
    """The system's CA bundle, if somebody added a certificate; otherwise every base has the same bundle."""
    return ["/etc/ssl/certs/ca-certificates.crt"] if any(added.rglob("*.crt")) else []


def wanted_wheels(folders: Sequence[Path], lock_texts: Iterable[str]) -> list[Path]:
    """The wheels in these folders whose name and version are in a lock; the install checks their hashes."""
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


if __name__ == "__main__":
    # For the Makefile: this machine's folders of wheels.
    try:
        print(*gather(os.environ).index.folders)
    except UserError as error:
        sys.exit(f"berth: error: {error}")
