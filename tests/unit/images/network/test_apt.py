"""This machine's apt sources that fit the base of a build, and the paths of apt's files."""

import shutil
from pathlib import Path

import pytest

from berth.images.network import apt
from tests.files import write_files

MIRROR = """\
Types: deb deb-src
URIs: https://mirror.corp/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://mirror.corp/other
Suites: stable
Components: main
"""
DOCKERS = (
    "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] https://download.docker.com/linux/debian bookworm stable\n"
)
OTHER_KEY = """\
Types: deb
URIs: https://corp/own
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 abc
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("debian.sources", MIRROR.replace("mirror.corp", "deb.debian.org"), "", id="public"),
        pytest.param(
            "debian.sources",
            MIRROR,
            "deb https://mirror.corp/debian bookworm main\ndeb https://mirror.corp/debian bookworm-updates main\n",
            id="mirror",
        ),
        pytest.param(
            "sources.list",
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://m/debian bookworm main\n"
            "# deb http://m/x bookworm main\n",
            "deb http://m/debian bookworm main\n",
            id="one-line",
        ),
        pytest.param("ubuntu.sources", MIRROR.replace("bookworm", "jammy"), "", id="other-suite"),
        pytest.param("docker.list", DOCKERS, "", id="other-key"),
        pytest.param("corp.sources", OTHER_KEY, "", id="other-key-inline"),
        pytest.param("extra.list", "deb https://corp/own bookworm tools\n", "", id="without-main"),
        pytest.param(
            "debian.sources", MIRROR.replace("https://mirror.corp/debian", "mirror+file:/etc/m"), "", id="file"
        ),
        pytest.param("sources.list", "", "", id="none"),
    ],
)
def test_private_sources_are_mirrors_of_the_bases_suite(name: str, text: str, expected: str) -> None:
    assert apt.private_sources([(name, text)]) == expected


def test_public_archive_is_kept_next_to_a_mirror() -> None:
    files = [
        ("sources.list", "deb http://security.debian.org/debian-security bookworm-security main\n" + DOCKERS),
        ("mirror.list", "deb http://m/debian bookworm main\n"),
    ]
    assert apt.private_sources(files) == (
        "deb http://security.debian.org/debian-security bookworm-security main\ndeb http://m/debian bookworm main\n"
    )


@pytest.mark.skipif(shutil.which("apt-config") is None, reason="this machine has no apt")
def test_paths_of_apts_files_come_from_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"netrc": "auth", "netrcparts": "auth.d/", "sourcelist": "list", "sourceparts": "list.d/"}
    settings = "".join(f'Dir::Etc::{name} "{tmp_path}/{place}";\n' for name, place in places.items())
    (tmp_path / "apt.conf").write_text(settings)
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    write_files(
        tmp_path,
        {
            "auth": "machine a login me password p",  # has no line end
            "auth.d/more.conf": "machine b login me password p\n",
            "auth.d/ignored": "machine c login me password p\n",
            "list": "deb http://m/debian bookworm main\n",
            "list.d/more.sources": MIRROR,
        },
    )
    assert apt.auth() == "machine a login me password p\nmachine b login me password p\n"
    assert [name for name, _ in apt.source_files()] == ["list", "more.sources"]
