"""This machine's network settings, and the secrets of a build made from them."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pip
import pytest

from berth.common.errors import UserError
from berth.images.build.prepare import secrets_folder
from berth.images.network import build_network, pip_settings
from berth.images.network.build_network import Network, PackageIndex
from berth.images.network.uv_settings import read_uv_settings
from berth.images.pins import pins
from tests.doubles.programs import shell_program


def test_pip_settings_become_uv_and_pip_files(tmp_path: Path) -> None:
    index = build_network.package_index(
        {},
        {
            "index-url": "https://user:secret@pypi.corp/simple",
            "find-links": f"{tmp_path} https://corp/wheels",
            "extra-index-url": "file:///local/simple https://extra/simple",
            "trusted-host": "pypi.corp",
            "proxy": "http://proxy.corp:3128",
        },
    )
    assert index == PackageIndex(
        url="https://user:secret@pypi.corp/simple",
        extra=("https://extra/simple",),
        links=("https://corp/wheels",),
        folders=(tmp_path,),
        trusted=("pypi.corp",),
        proxy="http://proxy.corp:3128",
    )
    assert index.uv_toml() == (
        'find-links = ["https://corp/wheels"]\n'
        'allow-insecure-host = ["pypi.corp"]\n'
        'http-proxy = "http://proxy.corp:3128"\n'
        'https-proxy = "http://proxy.corp:3128"\n'
        "[[index]]\n"
        'url = "https://extra/simple"\n'
        "[[index]]\n"
        'url = "https://user:secret@pypi.corp/simple"\n'
        "default = true\n"
    )
    assert index.pip_conf() == (
        "[global]\n"
        "no-input = true\n"
        "index-url = https://user:secret@pypi.corp/simple\n"
        "extra-index-url = https://extra/simple\n"
        "find-links = https://corp/wheels\n"
        "trusted-host = pypi.corp\n"
        "proxy = http://proxy.corp:3128\n"
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a user without settings; this machine's /etc/pip.conf still applies."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def found_index(home: Path, **variables: str) -> PackageIndex:
    pip_settings._read.cache_clear()  # tests edit pip's files within one process; commands do not
    return build_network.gather({"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "xdg"), **variables}).index


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.slow
def test_pip_files_override_each_other_and_variables_override_files(home: Path) -> None:
    """pip's user file overrides the system's (xdg). PIP_CONFIG_FILE replaces only the user's file."""
    url = "https://{}/simple"
    write(home / "xdg" / "pip" / "pip.conf", f"[global]\nindex-url = {url.format('xdg')}\ntrusted-host = xdg\n")
    assert found_index(home).url == url.format("xdg")
    write(home / ".config" / "pip" / "pip.conf", f"[global]\nindex_url = {url.format('user')}\n")
    assert (found_index(home).url, found_index(home).trusted) == (url.format("user"), ("xdg",))
    other = {"PIP_CONFIG_FILE": str(write(home / "pip.conf", f"[install]\nindex-url = {url.format('named')}\n"))}
    assert (found_index(home, **other).url, found_index(home, **other).trusted) == (url.format("named"), ("xdg",))
    assert found_index(home, **other, PIP_INDEX_URL=url.format("variable")).url == url.format("variable")
    assert found_index(home, **other, PIP_INDEX_URL="").url == url.format("named")
    assert found_index(home, PIP_CONFIG_FILE=os.devnull).url is None


def test_pip_variables_are_read_without_pip(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip_settings, "_SCRIPT", "print('null')")
    write(home / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://user/simple\n")
    index = found_index(home, PIP_EXTRA_INDEX_URL="https://variable/simple")
    assert (index.url, index.extra) == (None, ("https://variable/simple",))


def test_pip_on_path_is_used_if_this_python_has_none(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment that uv made has no pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    (tmp_path / "bin").mkdir()
    shell_program(tmp_path / "bin" / "python3", f'exec {sys.executable} "$@"')
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    write(home / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://user/simple\n")
    assert found_index(home, PATH=str(tmp_path / "bin")).url == "https://user/simple"
    assert found_index(home, PATH="", PIP_INDEX_URL="https://variable/simple").url == "https://variable/simple"


@pytest.mark.parametrize(
    ("name", "text", "path"),
    [
        ("pip", "index-url = https://me:s3cret@pypi.corp/simple\n", ".config/pip/pip.conf"),
        ("uv", "index-url = https://me:s3cret@pypi.corp/simple\n", ".config/uv/uv.toml"),
    ],
)
def test_malformed_settings_file_is_named_without_password(name: str, text: str, path: str, home: Path) -> None:
    write(home / path, text)
    with pytest.raises(UserError) as refusal:
        found_index(home)
    assert name in str(refusal.value)
    assert str(home / path) in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


def test_uv_settings_override_pip_and_uv_variables_override_uv_files(home: Path) -> None:
    write(home / "xdg" / "uv" / "uv.toml", 'allow-insecure-host = ["system"]\nindex-url = "https://system/simple"\n')
    write(
        home / ".config" / "uv" / "uv.toml",
        'allow-insecure-host = ["user"]\n[[index]]\nname = "corp-1"\nurl = "https://user/simple"\n'
        '[[index]]\nurl = "https://default/simple"\ndefault = true\n'
        '[[index]]\nurl = "https://pinned/simple"\nexplicit = true\n'
        '[pip]\nfind-links = ["https://user/wheels"]\n',
    )
    login = {"UV_INDEX_CORP_1_USERNAME": "me", "UV_INDEX_CORP_1_PASSWORD": "p@ss"}
    index = found_index(home, **login, PIP_INDEX_URL="https://pip/simple", PIP_EXTRA_INDEX_URL="https://pip/more")
    assert (index.url, index.extra) == ("https://default/simple", ("https://me:p%40ss@user/simple",))
    assert (index.links, index.trusted) == (("https://user/wheels",), ("user", "system"))
    assert found_index(home, UV_INDEX_URL="https://variable").url == "https://variable"
    assert found_index(home, UV_NO_CONFIG="1", PIP_INDEX_URL="https://pip/simple").url == "https://pip/simple"


def test_read_uv_settings_splits_lists_and_accepts_named_indexes(tmp_path: Path) -> None:
    uv = read_uv_settings(
        {
            "UV_NO_CONFIG": "1",
            "UV_FIND_LINKS": f"{tmp_path},https://corp/wheels",
            "UV_INDEX": "corp=https://corp/simple https://more/simple?a=b",
            "UV_INDEX_CORP_USERNAME": "me",
        }
    )
    index = build_network.package_index(uv, {})
    assert (index.folders, index.links) == ((tmp_path,), ("https://corp/wheels",))
    assert index.extra == ("https://me:@corp/simple", "https://more/simple?a=b")


def test_find_links_folder_relative_tilde_or_file_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker and uv resolve paths from other folders, so the paths are made absolute."""
    for name in ("wheels", "at home", "with,comma"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    index = build_network.package_index({}, {"find-links": f"wheels {(tmp_path / 'at home').as_uri()} ~/with,comma no"})
    assert index.folders == (tmp_path / "wheels", tmp_path / "at home", tmp_path / "with,comma")


def test_netrc_logins_are_added_to_index_urls(home: Path) -> None:
    """A URL with a user gets that user's login only; a URL with a password stays unchanged."""
    netrc = write(home / ".my-netrc", "machine pypi.corp login me password s3cret/\nmachine other login x password y\n")
    index = found_index(
        home,
        NETRC=str(netrc),
        PIP_CONFIG_FILE=os.devnull,
        UV_NO_CONFIG="1",
        PIP_INDEX_URL="https://pypi.corp:8443/one/simple",
        PIP_EXTRA_INDEX_URL="https://me@pypi.corp/two https://you@pypi.corp/three https://you:p@pypi.corp/4 https://x/5",
        PIP_FIND_LINKS="https://pypi.corp/wheels",
    )
    assert index.url == "https://me:s3cret%2F@pypi.corp:8443/one/simple"
    assert index.extra == (
        "https://me:s3cret%2F@pypi.corp/two",
        "https://you@pypi.corp/three",
        "https://you:p@pypi.corp/4",
        "https://x/5",
    )
    assert index.links == ("https://me:s3cret%2F@pypi.corp/wheels",)
    netrc.write_text("machine pypi.corp login")
    assert (
        found_index(home, NETRC=str(netrc), PIP_INDEX_URL="https://pypi.corp/simple").url == "https://pypi.corp/simple"
    )


def test_netrc_login_of_torch_index_is_added_to_uv_settings(home: Path) -> None:
    netrc = write(home / ".my-netrc", "machine torch.corp login me password s3cret\n")
    plain = Network(None, PackageIndex(), (), "", "", "")

    def uv_toml(url: str) -> str:
        return str(build_network.with_profiles_index(plain, url, {"NETRC": str(netrc)}).secrets().get("uv", ""))

    assert uv_toml("https://torch.corp/whl/cpu") == '[[index]]\nurl = "https://me:s3cret@torch.corp/whl/cpu"\n'
    assert [uv_toml("https://download.pytorch.org/whl/cpu"), uv_toml("")] == ["", ""]


def test_gather_reads_pip_file_and_variables(tmp_path: Path) -> None:
    (tmp_path / "corp.pem").write_text("certificate")
    (tmp_path / "pip.conf").write_text(
        f"[global]\nindex-url = https://corp/simple\ncert = {tmp_path / 'corp.pem'}\n[install]\ntrusted_host = corp\n"
    )
    environ = {
        "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
        "https_proxy": "http://u:p@proxy:3128",
        "NO_PROXY": "corp",
    }
    network = build_network.gather(environ)
    assert network.ca == tmp_path / "corp.pem"
    assert (network.index.url, network.index.trusted) == ("https://corp/simple", ("corp",))
    assert network.proxies == ("NO_PROXY", "https_proxy")
    assert "u:p" not in repr(network)


def test_ca_variable_overrides_pip_file(tmp_path: Path) -> None:
    for name in ("a.pem", "b.pem"):
        (tmp_path / name).write_text("certificate")
    (tmp_path / "pip.conf").write_text(f"[global]\ncert = {tmp_path / 'a.pem'}\n")
    environ = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "SSL_CERT_FILE": str(tmp_path / "b.pem")}
    assert build_network.gather(environ).ca == tmp_path / "b.pem"
    # A variable that names a missing file is ignored.
    assert build_network.gather(environ | {"SSL_CERT_FILE": "/nowhere.pem"}).ca == tmp_path / "a.pem"


def test_default_network_gives_no_secrets() -> None:
    assert Network(None, PackageIndex(folders=(Path("/w"),)), (), "", "", "").secrets() == {}


def test_apt_settings_refer_to_other_secrets() -> None:
    found = Network(Path("/ca.pem"), PackageIndex(), (), 'Acquire::Retries "3";\n', "machine m\n", "deb x y z\n")
    assert found.secrets() == {
        "ca": Path("/ca.pem"),
        "apt-auth": "machine m\n",
        "apt-sources": "deb x y z\n",
        "apt": 'Acquire::Retries "3";\n'
        'Dir::Etc::Netrc "/run/secrets/apt-auth";\n'
        'Acquire::https::CaInfo "/run/secrets/ca";\n',
    }


def test_secrets_are_readable_by_this_user_only(tmp_path: Path) -> None:
    paths = Network(None, PackageIndex(), (), "x\n", "", "").write_secrets(tmp_path / "secrets")
    assert paths == {"apt": tmp_path / "secrets" / "apt"}
    assert paths["apt"].read_text() == "x\n"
    assert stat.S_IMODE(paths["apt"].stat().st_mode) == 0o600


def test_write_secrets_reports_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"the network settings of a build can't be .*/cache is not a folder, so move"):
        Network(None, PackageIndex(), (), "x\n", "", "").write_secrets(tmp_path / "cache" / "secrets")


def test_only_locked_wheels_are_wanted(tmp_path: Path) -> None:
    for name in (
        "torch-2.13.0+cpu-cp311-x.whl",
        "torch-2.12.0+cpu-cp311-x.whl",
        "Foo_Bar-1.0-py3-none-any.whl",
        "x.whl",
    ):
        (tmp_path / name).write_bytes(b"wheel")
    wheels = build_network.wanted_wheels([tmp_path], ["torch==2.13.0+cpu \\\n    --hash=x\n", "foo-bar==1.0 \\\n"])
    assert [wheel.name for wheel in wheels] == ["Foo_Bar-1.0-py3-none-any.whl", "torch-2.13.0+cpu-cp311-x.whl"]


def test_uv_module_needs_no_installed_packages(tmp_path: Path) -> None:
    """The environment has only pip and uv, none of the packages that build.py needs."""
    made = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    python = next(made.glob("bin/python"))
    library = next(made.glob("lib/python*/site-packages"))
    (library / "pip").symlink_to(Path(pip.__file__).parent)
    shell_program(made / "bin" / "uv", 'echo "$@"; env | grep ^UV_ | sort')
    conf = write(
        tmp_path / "pip.conf", "[global]\nindex-url = https://corp/simple\nextra-index-url = https://more/simple\n"
    )
    environ = {"PIP_CONFIG_FILE": str(conf), "UV_INDEX": "https://own/simple", "PATH": os.environ["PATH"]}
    command = [str(python), "-m", "berth.images.locks.uv", "pip", "install", "x"]
    result = subprocess.run(command, env=environ, capture_output=True, text=True, cwd=pins.ROOT, check=True)
    assert result.stdout.splitlines() == [
        "pip install x",
        "UV_DEFAULT_INDEX=https://corp/simple",
        "UV_HTTP_TIMEOUT=120",
        "UV_INDEX=https://own/simple",
        "UV_NO_WRAP=1",
    ]


def test_commands_have_separate_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither command reads the other's secrets or deletes them."""
    monkeypatch.setattr(pins, "CACHE", tmp_path)
    one = Network(None, PackageIndex(url="https://me:one@corp/simple"), (), "", "", "")
    other = Network(None, PackageIndex(url="https://me:other@corp/simple"), (), "", "machine m\n", "")
    with secrets_folder(dry_run=False) as first:
        mine = one.write_secrets(first)
        before = {name: path.read_text() for name, path in mine.items()}
        with secrets_folder(dry_run=False) as second:
            other.write_secrets(second)
        assert {name: path.read_text() for name, path in mine.items()} == before
        assert not second.exists()
    with secrets_folder(dry_run=True) as folder:
        printed = one.write_secrets(folder)["pip"]
    with secrets_folder(dry_run=True) as folder:
        other.write_secrets(folder)
    assert "me:one@" in printed.read_text(), "a later dry run must not change the secrets of an earlier one"
    assert stat.S_IMODE(printed.parent.stat().st_mode) == 0o700
    assert not first.exists()
