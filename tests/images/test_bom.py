"""The bill of materials of the built images, compared with dpkg, Python and sha256sum in them."""

import json
import re
from pathlib import Path

import docker
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from docker.models.images import Image

from berth.images.inspect import cyclonedx, sbom
from berth.images.inspect.image_listing import listing_of
from berth.images.inspect.saved_image import SavedImage, read_image
from berth.images.pins import pins, pins_file

# The engine mounts its own files over these.
ENGINE_FILES = {"etc/hostname", "etc/hosts", "etc/resolv.conf"}
# Debian packages whose copyright file names a licence only in prose, and NVIDIA's empty package.
WITHOUT_LICENCE = {"libcrypt1", "libcrypt-dev", "cuda-toolkit"}
PYTHON = """
import json, importlib.metadata
print(json.dumps([(each.name, each.version) for each in importlib.metadata.distributions()]))
"""


def name_of(image: Image) -> str:
    return f"berth-{image.labels['berth.kit']}:{image.labels['berth.profile']}"


@pytest.fixture(scope="session")
def saved(slow_image: Image, client: docker.DockerClient) -> SavedImage:
    return read_image(client, name_of(slow_image))


@pytest.fixture(scope="session")
def bill(slow_image: Image, client: docker.DockerClient) -> cyclonedx.Bill:
    """It is cached, so a `push` that runs these tests first need not make it again."""
    return sbom.image_bill(client, name_of(slow_image))


def output_of(client: docker.DockerClient, bill: cyclonedx.Bill | SavedImage, *command: str) -> str:
    """The output of a command in a fresh container of the image."""
    printed = client.containers.run(
        bill.image_id, ["600", *command], entrypoint=["timeout"], network_mode="none", remove=True
    )
    return str(printed.decode())


@pytest.mark.nightly
def test_file_hashes_equal_those_of_sha256sum(saved: SavedImage, client: docker.DockerClient) -> None:
    lines = output_of(client, saved, "bash", "-c", "find / -xdev -type f -print0 | xargs -0 sha256sum").splitlines()
    seen = {line[66:].lstrip("/"): line[:64] for line in lines}
    found = {path: file.sha256 for path, file in saved.files.items() if file.kind == "file"}
    assert {path: sha256 for path, sha256 in seen.items() if path not in {*ENGINE_FILES, ".dockerenv"}} == {
        path: sha256 for path, sha256 in found.items() if path not in ENGINE_FILES
    }


def test_files_of_the_engine_are_empty(saved: SavedImage) -> None:
    """They would name the machine that built the image and its name servers."""
    assert [path for path in ENGINE_FILES if path in saved.files and saved.files[path].size] == []


def test_bill_has_exactly_the_packages_of_dpkg(bill: cyclonedx.Bill, client: docker.DockerClient) -> None:
    lines = output_of(client, bill, "dpkg-query", "--show", "--showformat", "${Package} ${Version}\n").splitlines()
    assert sorted(f"{each.name} {each.version}" for each in bill.packages if each.kind == "deb") == sorted(lines)


def test_bill_has_exactly_the_python_distributions(bill: cyclonedx.Bill, client: docker.DockerClient) -> None:
    listed = json.loads(output_of(client, bill, "python", "-c", PYTHON))
    # Without the packages that setuptools vendors: only setuptools can import them.
    own = [each for each in bill.packages if each.kind == "python" and "/_vendor/" not in each.path]
    assert sorted((plain(each.name), each.version) for each in own) == sorted((plain(n), v) for n, v in listed)


def plain(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def test_package_hash_is_that_of_its_files(bill: cyclonedx.Bill, client: docker.DockerClient) -> None:
    script = "dpkg-query --listfiles dash | while read -r f; do [ -L $f ] || [ ! -f $f ] || realpath $f; done"
    script += " | LC_ALL=C sort | xargs sha256sum | sha256sum"
    dash = next(each for each in bill.packages if each.name == "dash")
    assert dash.hash == output_of(client, bill, "bash", "-c", script).split()[0]


def test_packages_without_hash_have_no_files_left(bill: cyclonedx.Bill, saved: SavedImage) -> None:
    for each in bill.packages:
        if not each.hash:
            assert each.kind == "deb", each
            listing = saved.records.get(f"var/lib/dpkg/info/{each.name}:amd64.list", b"").decode().split()
            assert not any(path.lstrip("/") in saved.files for path in listing if path.endswith(".so")), each


def test_licences_are_known_except_for_listed_packages(bill: cyclonedx.Bill, profile: pins.Profile) -> None:
    if not any(
        each.kind == "file" for each in bill.packages
    ):  # packages that AWS's installers add often name no licence
        assert {each.name for each in bill.packages if not each.licence} <= WITHOUT_LICENCE
    assert any("NVIDIA" in each.licence for each in bill.packages) == bool(profile.cuda)


def test_listing_and_layers_give_the_same_bill(bill: cyclonedx.Bill, saved: SavedImage) -> None:
    """`bill` lists the files with the image's Python, `diff` reads the layers; both must give the same bill."""
    assert cyclonedx.bill_of(listing_of(saved), pins_file.load().files).document == bill.document


def test_bill_is_valid_and_reproducible(bill: cyclonedx.Bill, client: docker.DockerClient, tmp_path: Path) -> None:
    text = json.dumps(bill.document)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert json.dumps(sbom.image_bill(client, bill.image, cache=tmp_path).document) == text
