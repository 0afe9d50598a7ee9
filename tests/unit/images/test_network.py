"""What of this machine's network goes into a build, and in which form."""

import os
import stat
from pathlib import Path

import pytest

from berth.images import network
from berth.images.network import Network, PackageIndex


def test_indexes_of_pip_become_uv_and_pip_settings(tmp_path: Path) -> None:
    index = network.package_index(
        {"PIP_INDEX_URL": "https://user:secret@pypi.corp/simple", "PIP_FIND_LINKS": f"{tmp_path} https://corp/wheels"},
        {"extra-index-url": "file:///local/simple https://extra/simple", "trusted-host": "pypi.corp"},
    )
    assert index == PackageIndex(
        url="https://user:secret@pypi.corp/simple",
        extra=("https://extra/simple",),
        links=("https://corp/wheels",),
        folders=(tmp_path,),
        trusted=("pypi.corp",),
    )
    assert index.uv_toml() == (
        'find-links = ["https://corp/wheels"]\n'
        'allow-insecure-host = ["pypi.corp"]\n'
        "[[index]]\n"
        'url = "https://extra/simple"\n'
        "[[index]]\n"
        'url = "https://user:secret@pypi.corp/simple"\n'
        "default = true\n"
    )
    assert index.pip_conf() == (
        "[global]\n"
        "index-url = https://user:secret@pypi.corp/simple\n"
        "extra-index-url = https://extra/simple\n"
        "find-links = https://corp/wheels\n"
        "trusted-host = pypi.corp\n"
    )


def test_variables_go_before_files_and_uv_before_pip() -> None:
    index = network.package_index(
        {"UV_INDEX_URL": "https://uv", "PIP_INDEX_URL": "https://pip"}, {"index-url": "https://file"}
    )
    assert index.url == "https://uv"
    assert network.package_index({}, {"index-url": "https://file"}).url == "https://file"


def test_an_open_network_gives_no_secrets() -> None:
    assert Network(None, PackageIndex(folders=(Path("/w"),)), (), "", "", "").secrets() == {}


def test_apt_settings_point_at_the_other_secrets() -> None:
    found = Network(Path("/ca.pem"), PackageIndex(), (), 'Acquire::Retries "3";\n', "machine m\n", "deb x y z\n")
    assert found.secrets() == {
        "ca": Path("/ca.pem"),
        "apt-auth": "machine m\n",
        "apt-sources": "deb x y z\n",
        "apt": 'Acquire::Retries "3";\n'
        'Dir::Etc::Netrc "/run/secrets/apt-auth";\n'
        'Dir::Etc::SourceList "/run/secrets/apt-sources";\n'
        'Dir::Etc::SourceParts "/dev/null";\n'
        'Acquire::https::CaInfo "/run/secrets/ca";\n',
    }


def test_secrets_are_files_for_this_user_only(tmp_path: Path) -> None:
    paths = Network(None, PackageIndex(), (), "x\n", "", "").write_secrets(tmp_path / "secrets")
    assert paths == {"apt": tmp_path / "secrets" / "apt"}
    assert paths["apt"].read_text() == "x\n"
    assert stat.S_IMODE(paths["apt"].stat().st_mode) == 0o600


DEB822 = """\
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


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([("debian.sources", DEB822.replace("mirror.corp", "deb.debian.org"))], ""),
        (
            [("debian.sources", DEB822)],
            "deb https://mirror.corp/debian bookworm main\ndeb https://mirror.corp/debian bookworm-updates main\n",
        ),
        ([("sources.list", "deb [signed-by=/k] http://m/debian bookworm main\n# deb http://m/x bookworm y\n")], None),
        ([("ubuntu.sources", DEB822.replace("bookworm", "jammy"))], ""),
        ([], ""),
    ],
    ids=["public", "mirror", "one-line", "other-suite", "none"],
)
def test_only_a_mirror_of_the_bases_own_suite_is_passed_on(files: list[tuple[str, str]], expected: str | None) -> None:
    found = network.private_sources(files)
    assert found == ("deb http://m/debian bookworm main\n" if expected is None else expected)


def test_the_mirror_for_a_base_is_the_main_one() -> None:
    sources = "deb http://m/security bookworm-security main\ndeb http://m/debian bookworm main\n"
    assert network.mirror_of(sources) == "http://m/debian"
    assert network.mirror_of("") is None


def test_only_locked_wheels_are_linked(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    for name in ("torch-2.13.0+cpu-cp311-x.whl", "torch-2.12.0+cpu-cp311-x.whl", "Foo_Bar-1.0-py3-none-any.whl"):
        (here / name).write_bytes(b"wheel")
    wheels = network.wanted_wheels([here], ["torch==2.13.0+cpu \\\n    --hash=x\n", "foo-bar==1.0 \\\n"])
    assert [wheel.name for wheel in wheels] == ["Foo_Bar-1.0-py3-none-any.whl", "torch-2.13.0+cpu-cp311-x.whl"]
    network.link_wheels(wheels, there)
    network.link_wheels(wheels, there)
    assert sorted(os.listdir(there)) == sorted(wheel.name for wheel in wheels)
