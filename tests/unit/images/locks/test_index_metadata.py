"""Parsing a package index's releases of a project."""

from collections.abc import Iterator

import pytest
import requests

from berth.images.locks.index_metadata import Index, parse_project
from berth.images.network.build_network import Network, PackageIndex
from tests.doubles.package_index import JsonIndex, json_index

PYTHONS = tuple(f"3.{minor}" for minor in range(7, 15))


@pytest.fixture
def served() -> Iterator[JsonIndex]:
    with json_index() as running:
        yield running


def network(url: str, *extra: str) -> Network:
    return Network(None, PackageIndex(url=url, extra=extra), (), "", "", "")


def test_parse_project_finds_final_installable_releases() -> None:
    first = {"filename": "a-2.0-cp311-cp311-manylinux_2_28_x86_64.whl"}
    second = {"filename": "a-2.0.tar.gz", "requires-python": ">=3.9"}
    old = {"filename": "a-1.0.tar.gz", "yanked": "broken"}
    both, withdrawn = parse_project({"name": "a", "files": [old, first, second, {"filename": "a-1.0.exe"}]})
    assert str(both.version) == "2.0"
    assert [both.has_wheel("3.11"), both.has_wheel("3.12"), both.is_for("3.12"), both.is_for("3.8")] == [
        *(True, False),
        *(True, True),  # the wheel has no Requires-Python
    ]
    assert not withdrawn.is_for("3.11")


def test_post_release_is_newer_than_its_release() -> None:
    names = [f"certifi-{version}-py3-none-any.whl" for version in ("2026.10.19", "2026.10.19.post1", "2026.10.5")]
    releases = parse_project({"name": "certifi", "files": [{"filename": name} for name in names]})
    assert [str(each.version) for each in releases] == ["2026.10.19.post1", "2026.10.19", "2026.10.5"]


@pytest.mark.parametrize(
    ("name", "pythons"),
    [
        ("a-1-py3-none-any.whl", PYTHONS),
        ("a-1-cp39-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", PYTHONS[2:]),
        ("a-1-cp310-cp310-manylinux1_x86_64.whl", ("3.10",)),
        ("a-1-cp37-cp37m-manylinux1_x86_64.whl", ("3.7",)),
        ("a-1-cp311-cp311-manylinux_2_34_x86_64.whl", ()),
        ("a-1-cp311-cp311-macosx_11_0_arm64.whl", ()),
        ("a-1.tar.gz", ()),
    ],
)
def test_pythons_with_wheels_of_a_release(name: str, pythons: tuple[str, ...]) -> None:
    (release,) = parse_project({"name": "a", "files": [{"filename": name}]})
    assert tuple(each for each in PYTHONS if release.has_wheel(each)) == pythons


def test_invalid_requires_python_is_ignored() -> None:
    """nltk 3.6.2 on PyPI has such a value."""
    (release,) = parse_project({"name": "a", "files": [{"filename": "a-1.0.tar.gz", "requires-python": ">=3.5.*"}]})
    assert release.is_for("3.11")


def test_all_indexes_are_asked_and_their_errors_returned(served: JsonIndex) -> None:
    served.add("peft", "0.15.2")
    with Index(network("http://127.0.0.1:9/simple", f"{served.url}/")) as index:
        found, reason = index.look_up("PEFT")
        assert [str(each.version) for each in found] == ["0.15.2"]
        assert reason == "Connection refused"
        assert index.look_up("pefd") == ([], "Connection refused; 404 Not Found")


def test_indexes_on_one_host_have_separate_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login in a URL overrides netrc's login for the host."""
    logins = {}

    def get(_: requests.Session, url: str, **options: object) -> requests.Response:
        logins[url.partition("art.corp")[2]] = options["auth"]
        raise requests.ConnectionError

    monkeypatch.setattr(requests.Session, "get", get)
    with Index(network("https://a:1@art.corp/one", "https://b:p%40ss@art.corp/two", "https://art.corp/open")) as index:
        index.look_up("peft")
    assert logins == {"/one/peft/": ("a", "1"), "/two/peft/": ("b", "p@ss"), "/open/peft/": None}
