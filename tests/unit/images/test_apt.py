"""Which of this machine's package sources fit the base of a build."""

import pytest

from berth.images import apt

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
        pytest.param("docker.list", DOCKERS, "", id="another-key"),
        pytest.param("corp.sources", OTHER_KEY, "", id="another-key-inside"),
        pytest.param("extra.list", "deb https://corp/own bookworm tools\n", "", id="not-of-debians-layout"),
        pytest.param(
            "debian.sources", MIRROR.replace("https://mirror.corp/debian", "mirror+file:/etc/m"), "", id="file"
        ),
        pytest.param("sources.list", "", "", id="none"),
    ],
)
def test_only_a_mirror_of_the_bases_own_suite_is_passed_on(name: str, text: str, expected: str) -> None:
    assert apt.private_sources([(name, text)]) == expected


def test_a_public_archive_stays_beside_a_mirror() -> None:
    files = [
        ("sources.list", "deb http://security.debian.org/debian-security bookworm-security main\n" + DOCKERS),
        ("mirror.list", "deb http://m/debian bookworm main\n"),
    ]
    assert apt.private_sources(files) == (
        "deb http://security.debian.org/debian-security bookworm-security main\ndeb http://m/debian bookworm main\n"
    )
