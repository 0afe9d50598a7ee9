"""Files and variables that bench/fresh.py gives its Debian."""

from pathlib import Path

import pytest

from bench import fresh
from berth.common.errors import UserError
from berth.images.network.build_network import Network, PackageIndex


def closed_network(tmp_path: Path) -> Network:
    ca = tmp_path / "corp.pem"
    ca.write_text("certificate")
    (tmp_path / "wheels").mkdir()
    index = PackageIndex(
        url="https://user:secret@corp/simple", links=("https://corp/w",), folders=(tmp_path / "wheels",)
    )
    return Network(ca, index, ("HTTPS_PROXY",), "Acquire::Retries 3;\n", "", "deb http://corp/debian bookworm main\n")


def test_settings_of_closed_network_are_written_as_files(tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()
    fresh.lay_out(closed_network(tmp_path), folder)
    assert sorted(path.name for path in folder.iterdir()) == ["apt", "apt-sources", "ca.pem", "pip"]
    assert (folder / "pip").read_text() == (
        "[global]\nno-input = true\n"
        "index-url = https://user:secret@corp/simple\n"
        f"find-links = https://corp/w {tmp_path / 'wheels'}\n"
        "cert = /machine/ca.pem\n"
    )
    assert (folder / "apt").read_text() == 'Acquire::Retries 3;\nAcquire::https::CaInfo "/machine/ca.pem";\n'


def test_open_network_needs_no_settings(tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()
    fresh.lay_out(Network(None, PackageIndex(), (), "", "", ""), folder)
    assert sorted(path.name for path in folder.iterdir()) == []


def test_variables_of_login_and_network_are_kept(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://proxy:3128", "AWS_PROFILE": "mine", "PATH": "/opt/pyenv/shims", "UV_INDEX": "x"}
    found = fresh.settings(closed_network(tmp_path), environ)
    assert sorted(found) == ["HOME", "HTTPS_PROXY", "LANG", "PATH", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"]
    assert found["PATH"].startswith("/usr/local/sbin:")


def test_unknown_make_target_is_an_error() -> None:
    assert {*fresh.COMMANDS, "images", "local-mode"} <= fresh.make_targets()
    with pytest.raises(UserError, match="make has no target tset, dmeo: `make help` lists them"):
        fresh.main(["tset", "images", "dmeo"])
