"""Doubles of the files that no package index has, and a checkout whose profile cpu contains them.

The tests do not download EFA's installer, SMDDP, GDRCopy and cuda-compat. Small files of the same formats replace them;
their versions end in +double. A test key signs EFA's archive.
"""

import functools
import hashlib
import http.server
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from berth.common.errors import UserError
from berth.images.build import docker_build
from berth.images.pins import layer_files, pins, pins_file
from tests.doubles.http_server import serving

SOURCE = pins.ROOT / "tests" / "doubles" / "efa_installer_double"
VERSIONS = {"efa": "1.47.0+double", "smddp": "2.6.0+double", "gdrcopy": "2.5+double", "cuda-compat": "580.1+double"}
NAMES = {
    "efa": "efa-installer.tar.gz",
    "smddp": "smdistributed_dataparallel-2.6.0+double-py3-none-any.whl",
    "gdrcopy": "libgdrapi.deb",
    "cuda-compat": "cuda-compat.deb",
}


def run(*words: str | Path, **settings: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True, timeout=120, **settings)  # type: ignore[call-overload]


@dataclass(frozen=True)
class Signer:
    """A test key in a home folder of gpg."""

    home: Path
    fingerprint: str

    def sign(self, path: Path) -> None:
        run("gpg", "--batch", "--homedir", self.home, "--yes", "--detach-sign", path)

    def export(self, path: Path, *form: str) -> None:
        run("gpg", "--batch", "--homedir", self.home, "--yes", *form, "--output", path, "--export")


@pytest.fixture(scope="session")
def signers() -> Iterator[tuple[Signer, Signer]]:
    """Two signers; installs gpg if it is missing."""
    if shutil.which("gpg") is None:
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-qq", "--yes", "--no-install-recommends", "gnupg")
    made = []
    # Not tmp_path, because the agent's socket needs a short path.
    with tempfile.TemporaryDirectory(prefix="berth-gpg") as folder:
        for name in ("one", "other"):
            home = Path(folder) / name
            home.mkdir(mode=0o700)
            gpg = ["gpg", "--batch", "--homedir", str(home)]
            run(*gpg, "--passphrase", "", "--quick-gen-key", f"{name} <{name}@berth.test>", "ed25519", "sign", "never")
            listing = subprocess.run([*gpg, "--with-colons", "--list-keys"], check=True, capture_output=True, text=True)
            fingerprint = next(line.split(":")[9] for line in listing.stdout.splitlines() if line.startswith("fpr:"))
            made.append(Signer(home, fingerprint))
        yield made[0], made[1]
        for signer in made:
            run("gpgconf", "--homedir", signer.home, "--kill", "all")


def library(path: Path, *needed: Path) -> Path:
    """Makes a shared object that needs exactly the libraries `needed`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-Wl,--no-as-needed", f"-Wl,-soname,{path.name}"]
    run(*command, "-o", path, SOURCE / "library.c", *needed)
    return path


@dataclass(frozen=True)
class Doubles:
    """Makes doubles in a folder; by default they are valid."""

    folder: Path

    def efa(
        self,
        *,
        version: str = VERSIONS["efa"],
        exit_code: int = 0,
        packages: str = "",
        runtime: bool = False,
        plugin_unloadable: bool = False,
        name: str = "libnccl-net-ofi.so",
    ) -> Path:
        """Makes EFA's archive.

        runtime: it contains a libcudart, so the build loads the plugin. plugin_unloadable: the plugin needs a library
        that is missing.
        """
        source = self.folder / "aws-efa-installer"
        root = source / "root"
        shutil.copytree(SOURCE, source)
        (source / "settings").write_text(f"{version} {exit_code} {packages}\n")
        amazon = root / "opt" / "amazon"
        fabric = library(amazon / "efa/lib/libfabric.so.1")
        needed = [fabric]
        if runtime:
            needed.append(library(root / "usr/local/lib/libcudart.so"))
        if plugin_unloadable:
            needed.append(library(self.folder / "libabsent.so.1"))
        library(amazon / "ofi-nccl/lib" / name, *needed)
        for path in ("efa/include/fabric.h", "efa/lib/libfabric.a", "openmpi/bin/mpirun", "openmpi5/bin/mpirun"):
            (amazon / path).parent.mkdir(parents=True, exist_ok=True)
            (amazon / path).write_text("what the image has no use for")
        (amazon / "efa/bin").mkdir()
        shutil.copy(SOURCE / "fi_info", amazon / "efa/bin/fi_info")
        (root / "etc/ld.so.conf.d").mkdir(parents=True)
        (root / "etc/ld.so.conf.d/000_efa.conf").write_text("/opt/amazon/efa/lib\n")
        archive = self.folder / NAMES["efa"]
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(source, source.name)
        return archive

    def smddp(self, *, version: str = VERSIONS["smddp"], name: str = NAMES["smddp"]) -> Path:
        """A wheel whose import raises, like the real one on an unknown instance type."""
        wheel = self.folder / name
        record = f"{'-'.join(name.split('-')[:2])}.dist-info"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("smdistributed/__init__.py", "")
            archive.writestr(
                "smdistributed/dataparallel/__init__.py", "raise RuntimeError('instance type not supported')"
            )
            archive.write(library(self.folder / "libsmddp.so"), "smdistributed/dataparallel/lib/libsmddp.so")
            about = f"Metadata-Version: 2.1\nName: smdistributed-dataparallel\nVersion: {version}\n"
            archive.writestr(f"{record}/METADATA", about)
            archive.writestr(
                f"{record}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any"
            )
            archive.writestr(f"{record}/RECORD", "")
        return wheel

    def gdrcopy(self, *, version: str = VERSIONS["gdrcopy"], name: str = "libgdrapi.so.2") -> Path:
        return self._debian("gdrcopy", library(self.folder / "gdrcopy/usr/lib/x86_64-linux-gnu" / name), version)

    def compat(self, *, unloadable: bool = False) -> Path:
        """unloadable: libcuda needs a library that is missing."""
        needed = [library(self.folder / "libabsent.so.1")] if unloadable else []
        path = self.folder / "cuda-compat/usr/local/cuda-13.0/compat/libcuda.so.1"
        return self._debian("cuda-compat", library(path, *needed), VERSIONS["cuda-compat"])

    def _debian(self, part: str, shared_object: Path, version: str) -> Path:
        """Makes a Debian package with one library and a symlink NAME.so to it."""
        root = self.folder / part
        (shared_object.parent / f"{shared_object.name.partition('.so')[0]}.so").symlink_to(shared_object.name)
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN" / "control").write_text(
            f"Package: lib{part}\nVersion: {version}-1\nArchitecture: amd64\nMaintainer: a <a@b>\nDescription: double\n"
        )
        run("dpkg-deb", "--build", "--root-owner-group", root, self.folder / NAMES[part])
        return self.folder / NAMES[part]


@pytest.fixture
def doubles(tmp_path: Path) -> Doubles:
    return Doubles(tmp_path)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    made = tmp_path / "mirror"
    made.mkdir()
    return made


Pin = Callable[..., pins.Profile]


@pytest.fixture
def pin(kit_copy: Path, mirror: Path, signers: tuple[Signer, Signer]) -> Pin:
    """`pin(archive, …)` copies archives to the mirror, pins them in the test's checkout and returns its profile cpu.

    signer, key, fingerprint: the index in `signers` of the key that signs EFA's archive, of the public key in efa.key,
    and of the pinned fingerprint.
    """

    def write(
        *archives: Path, signer: int = 0, key: int = 0, fingerprint: int = 0, sha256: str | None = None
    ) -> pins.Profile:
        parts = {part: each for each in archives for part, name in NAMES.items() if each.name[:8] == name[:8]}
        path = kit_copy / "docker" / "pins.toml"
        text = path.read_text()
        for part, archive in parts.items():
            shutil.copy(archive, mirror)
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            text += f'\n[files."{part}-{VERSIONS[part]}"]\nfile = "{archive.name}"\nsha256 = "{sha256 or digest}"\n'
            text = text.replace("[profiles.cpu]\n", f'[profiles.cpu]\n{part} = "{VERSIONS[part]}"\n')
            if part == "efa":
                text += f'key_url = "https://invalid/efa.key"\nkey_fingerprint = "{signers[fingerprint].fingerprint}"\n'
                signers[signer].sign(mirror / archive.name)
                signers[key].export(mirror / "efa.key", *(["--armor"] if key == 0 else []))
        path.write_text(text)
        profile = pins_file.load(path).profile("cpu")
        layer_files.render([profile], kit_copy / "docker" / "locks")
        return profile

    return write


@pytest.fixture
def copy_to_docker_files(mirror: Path, kit_copy: Path) -> Callable[..., None]:
    """`copy_to_docker_files()` copies the mirror's files to docker/files, except the one named `omit`."""

    def copy(omit: str = "") -> None:
        for path in mirror.iterdir():
            if path.name != omit:
                shutil.copy(path, kit_copy / "docker" / "files")

    return copy


@pytest.fixture
def build_error(
    kit_copy: Path, build_as: Callable[..., docker_build.Built], client: docker.DockerClient
) -> Callable[[pins.Profile, str], str]:
    """`build_error(profile, target)` builds, expects an error and returns the error's first line.

    It checks that no image is left.
    """

    def first_line(profile: pins.Profile, target: str) -> str:
        with pytest.raises(UserError, match="The whole log:") as refusal:
            build_as("berth-test:files", "train", kit_copy, target=target, profile=profile)
        assert not client.images.list("berth-test:files")
        return str(refusal.value).splitlines()[0]

    return first_line


@pytest.fixture
def address(mirror: Path) -> Iterator[str]:
    """The URL of the mirror over HTTP."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(mirror))
    with serving(handler) as url:
        yield url
