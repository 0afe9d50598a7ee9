"""What of this machine's network goes into a build, and in which form."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images import build_network, pins
from berth.images.build_network import Network, PackageIndex


def test_indexes_of_pip_become_uv_and_pip_settings(tmp_path: Path) -> None:
    index = build_network.package_index(
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
    index = build_network.package_index(
        {"UV_INDEX_URL": "https://uv", "PIP_INDEX_URL": "https://pip"}, {"index-url": "https://file"}
    )
    assert index.url == "https://uv"
    assert build_network.package_index({}, {"index-url": "https://file"}).url == "https://file"


def test_lists_of_uv_are_separated_by_commas_and_may_be_named(tmp_path: Path) -> None:
    index = build_network.package_index(
        {"UV_FIND_LINKS": f"{tmp_path},https://corp/wheels", "UV_INDEX": "corp=https://corp/simple"}, {}
    )
    assert (index.folders, index.links, index.extra) == (
        (tmp_path,),
        ("https://corp/wheels",),
        ("https://corp/simple",),
    )


def test_gather_reads_pips_file_and_the_variables(tmp_path: Path) -> None:
    (tmp_path / "corp.pem").write_text("certificate")
    (tmp_path / "pip.conf").write_text(
        f"[global]\nindex-url = https://corp/simple\ncert = {tmp_path / 'corp.pem'}\n[install]\ntrusted_host = corp\n"
    )
    environ = {
        "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
        "https_proxy": "http://u:p@proxy:3128",
        "NO_PROXY": "corp",
    }
    found = build_network.gather(environ)
    assert found.ca == tmp_path / "corp.pem"
    assert (found.index.url, found.index.trusted) == ("https://corp/simple", ("corp",))
    assert found.proxies == ("NO_PROXY", "https_proxy")
    assert "u:p" not in repr(found)


def test_a_variable_names_the_ca_before_pips_file(tmp_path: Path) -> None:
    for name in ("a.pem", "b.pem"):
        (tmp_path / name).write_text("certificate")
    (tmp_path / "pip.conf").write_text(f"[global]\ncert = {tmp_path / 'a.pem'}\n")
    environ = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "SSL_CERT_FILE": str(tmp_path / "b.pem")}
    assert build_network.gather(environ).ca == tmp_path / "b.pem"
    # A variable that points nowhere does not hide the file.
    assert build_network.gather(environ | {"SSL_CERT_FILE": "/nowhere.pem"}).ca == tmp_path / "a.pem"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:p@host/x", "https://host/x"),
        ("https://u:p@ss@host/x", "https://host/x"),
        ("see https://u:p:@@host and http://v@other/y@z.", "see https://host and http://other/y@z."),
        ("https://host/x@y", "https://host/x@y"),
    ],
)
def test_a_password_is_left_out_up_to_the_last_at(text: str, shown: str) -> None:
    assert build_network.without_password(text) == shown


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
        'Acquire::https::CaInfo "/run/secrets/ca";\n',
    }


def test_secrets_are_files_for_this_user_only(tmp_path: Path) -> None:
    paths = Network(None, PackageIndex(), (), "x\n", "", "").write_secrets(tmp_path / "secrets")
    assert paths == {"apt": tmp_path / "secrets" / "apt"}
    assert paths["apt"].read_text() == "x\n"
    assert stat.S_IMODE(paths["apt"].stat().st_mode) == 0o600


def test_secrets_in_no_folder_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"what a build needs of the network can't be .*/cache is no folder, so move"):
        Network(None, PackageIndex(), (), "x\n", "", "").write_secrets(tmp_path / "cache" / "secrets")


def test_only_locked_wheels_are_wanted(tmp_path: Path) -> None:
    here = tmp_path
    for name in (
        "torch-2.13.0+cpu-cp311-x.whl",
        "torch-2.12.0+cpu-cp311-x.whl",
        "Foo_Bar-1.0-py3-none-any.whl",
        "x.whl",
    ):
        (here / name).write_bytes(b"wheel")
    wheels = build_network.wanted_wheels([here], ["torch==2.13.0+cpu \\\n    --hash=x\n", "foo-bar==1.0 \\\n"])
    assert [wheel.name for wheel in wheels] == ["Foo_Bar-1.0-py3-none-any.whl", "torch-2.13.0+cpu-cp311-x.whl"]


def test_make_reads_pips_settings_with_a_python_that_has_no_pip(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://file/simple\nfind-links = /wheels https://corp/wheels\n[list]\ncert = /no.pem\n"
    )
    environ = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_CERT": "/corp.pem", "PIP_INDEX_URL": ""}
    # Isolated and without site-packages, as Debian's python3 is, to which no package of Python's has been added.
    command = [sys.executable, "-I", "-S", str(pins.ROOT / "images" / "pip_settings.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "index-url=https://file/simple cert=/corp.pem find-links=/wheels,https://corp/wheels\n"


def test_secrets_of_earlier_settings_do_not_stay(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    first = Network(None, PackageIndex(url="https://user:old@corp"), (), "", "machine a password b\n", "")
    assert sorted(first.write_secrets(folder)) == ["apt", "apt-auth", "pip", "uv"]
    ended = subprocess.Popen(["true"])
    ended.wait()
    (folder / f".pip.{ended.pid}").write_text("of a build that was killed")
    (folder / f".pip.{os.getpid()}").write_text("of a build that writes it now")
    later = Network(None, PackageIndex(), (), "Acquire::Retries 3;\n", "", "")
    later.write_secrets(folder)
    assert sorted(os.listdir(folder)) == [f".pip.{os.getpid()}", "apt"]
