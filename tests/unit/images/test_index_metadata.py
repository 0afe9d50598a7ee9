"""What a package index says of releases, and what is known with it; each error is a sentence."""

import io
import zipfile
from collections.abc import Iterator

import pytest

from berth.common.errors import UserError
from berth.images import known_releases
from berth.images.build_network import Network, PackageIndex
from berth.images.combinations import Combination, Known, ReleaseRow, can_both_be, faults, newest_that_fits
from berth.images.index_metadata import Index, Metadata, login_for, parse_metadata, parse_project
from berth.images.inventory.releases import is_newer, newest
from berth.images.lock_text import entries
from tests.doubles.package_index import JsonIndex, json_index

TORCH_13 = (
    'cuda-toolkit[cublas,cudart,cufft]==13.0.3; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
    'nvidia-nccl-cu13==2.29.7; platform_system == "Linux"',
    'triton==3.7.1; platform_system == "Linux" and python_version < "3.15"',
)
TORCH_12 = (
    'nvidia-cuda-runtime-cu12 (==12.4.127) ; platform_system == "Linux" and platform_machine == "x86_64"',
    'nvidia-cudnn-cu12 (==9.1.0.70) ; platform_system == "Linux" and platform_machine == "x86_64"',
    'nvidia-nccl-cu12 (==2.21.5) ; platform_system == "Linux" and platform_machine == "x86_64"',
    'triton (==3.1.0) ; platform_system == "Linux" and python_version < "3.13"',
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[JsonIndex]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with json_index() as running:
        yield running


@pytest.fixture
def index(served: JsonIndex) -> Iterator[Index]:
    with Index(Network(None, PackageIndex(url=f"{served.url}/"), (), "", "", "")) as asked:
        yield asked


def test_a_release_has_its_day_its_pythons_and_whether_it_was_withdrawn() -> None:
    first = {"filename": "a-2.0-cp311-cp311-manylinux_2_28_x86_64.whl", "upload-time": "2025-01-30T01:00:00Z"}
    second = {"filename": "a-2.0.tar.gz", "upload-time": "2025-01-29T23:00:00.5Z", "requires-python": ">=3.9"}
    old = {"filename": "a-1.0.tar.gz", "yanked": "broken"}
    newest, withdrawn = parse_project({"name": "a", "files": [old, first, second, {"filename": "a-1.0.exe"}]})
    assert (str(newest.version), newest.day, newest.requires_python, newest.yanked) == (
        "2.0",
        "2025-01-29",
        ">=3.9",
        False,
    )
    assert [newest.has_wheel("3.11"), newest.has_wheel("3.12"), newest.is_for("3.12"), newest.is_for("3.8")] == [
        *(True, False),
        *(True, True),  # of the wheel nothing is said
    ]
    assert (withdrawn.day, withdrawn.yanked, withdrawn.is_for("3.11")) == ("", True, False)


def test_a_post_release_is_newer_than_its_release_and_another_version() -> None:
    names = [f"certifi-{version}-py3-none-any.whl" for version in ("2026.10.19", "2026.10.19.post1", "2026.10.5")]
    releases = parse_project({"name": "certifi", "files": [{"filename": name, "url": name} for name in names]})
    assert [str(each.version) for each in releases] == ["2026.10.19.post1", "2026.10.19", "2026.10.5"]
    assert newest(releases, "3.11") == "2026.10.19.post1"
    assert is_newer("2026.10.19.post1", "2026.10.19")
    known = Known({"certifi": {str(each.version): known_releases.row_of(each) for each in releases}})
    assert known.spelt("certifi", "2026.10.19.post1") == "2026.10.19.post1"
    assert newest_that_fits("certifi", Combination({}), known) == "2026.10.19.post1"
    assert newest_that_fits("certifi", Combination({}, constraints=["certifi<=2026.10.19"]), known) == "2026.10.19"
    assert can_both_be(["==2026.10.19.post1", ">=2026.10.19"])
    assert not can_both_be(["==2026.10.19.post1", "<=2026.10.19"])
    lock = "certifi==2026.10.19.post1 \\\n    --hash=sha256:aa\n"
    assert [(name, version) for name, version, _ in entries(lock)] == [("certifi", "2026.10.19.post1")]


@pytest.mark.parametrize(
    ("name", "pythons"),
    [
        ("a-1-py3-none-any.whl", known_releases.PYTHONS),
        (
            "a-1-cp39-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
            ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14"),
        ),
        ("a-1-cp310-cp310-manylinux1_x86_64.whl", ("3.10",)),
        ("a-1-cp37-cp37m-manylinux1_x86_64.whl", ("3.7",)),
        ("a-1-cp311-cp311-manylinux_2_34_x86_64.whl", ()),
        ("a-1-cp311-cp311-macosx_11_0_arm64.whl", ()),
        ("a-1.tar.gz", None),
    ],
)
def test_the_pythons_that_a_release_has_wheels_for(name: str, pythons: tuple[str, ...] | None) -> None:
    release = parse_project({"name": "a", "files": [{"filename": name, "url": name}]})[0]
    assert known_releases.row_of(release).pythons == pythons


def test_metadata_is_what_a_release_asks_for() -> None:
    text = "Name: a\nRequires-Python: >=3.9\nRequires-Dist: b>=1\nRequires-Dist: c ;\n  extra == 'd'\n"
    assert parse_metadata(f"{text}\nRequires-Dist: of the description\n") == Metadata(
        ">=3.9", ("b>=1", "c ; extra == 'd'")
    )


def test_bounds_are_those_of_linux_and_of_the_extras_of_torch() -> None:
    requires = (
        "numpy (>=1.17)",
        "tokenizers (!=0.11.3,<0.14,>=0.11.1)",
        "torch (!=1.12.0,>=1.7) ; extra == 'torch'",
        "Accelerate (>=0.10.0) ; extra == 'accelerate'",
        "torch (>=9) ; extra == 'dev'",
        "importlib-metadata ; python_version < '3.8'",
        "pywin32 ; sys_platform == 'win32'",
        "numpy (<3)",
        "not a requirement",
    )
    assert known_releases.bounds_of(Metadata("", requires)) == {
        "accelerate": ">=0.10.0",
        "numpy": "<3,>=1.17",
        "tokenizers": "!=0.11.3,<0.14,>=0.11.1",
        "torch": "!=1.12.0,>=1.7",
    }


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        (TORCH_13, {"cuda": "13.0.3", "cudnn": "9.20.0", "nccl": "2.29.7", "triton": "3.7.1"}),
        (TORCH_12, {"cuda": "12.4", "cudnn": "9.1.0", "nccl": "2.21.5", "triton": "3.1.0"}),
        ((*TORCH_13[:3], "triton~=3.9.0"), {"cuda": "13.0.3", "cudnn": "9.20.0", "nccl": "2.29.7", "triton": "3.9.2"}),
        (TORCH_13[:2], {}),
    ],
)
def test_torchs_pins_are_those_of_cudas_parts(requires: tuple[str, ...], expected: dict[str, str]) -> None:
    release = parse_project({"name": "torch", "files": [{"filename": "torch-2.0-py3-none-any.whl"}]})[0]
    assert known_releases.row_of(release, Metadata("", requires), ["4.0.0", "3.9.2", "3.9.0"]).cuda == expected


@pytest.mark.parametrize("parts", [True, False], ids=["in parts", "as a whole"])
def test_what_a_release_asks_for_is_read_inside_its_wheel(served: JsonIndex, index: Index, parts: bool) -> None:
    served.parts = parts
    served.add("peft", "0.15.2", "Requires-Dist: transformers\nRequires-Dist: accelerate>=0.21.0\n")
    assert index.metadata(index.releases("PEFT")[0]).requires == ("transformers", "accelerate>=0.21.0")
    assert index.metadata(index.releases("peft")[0]).requires_python == ""
    assert len(served.asked) == 2, "what it was told it remembers"


def test_of_a_large_wheel_only_the_end_is_read(served: JsonIndex, index: Index) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("peft/large.bin", bytes(3 << 20))
        for number in range(2000):
            archive.writestr(f"peft/{number}-{'x' * 60}.py", "")
        archive.writestr("peft-1.0.dist-info/METADATA", "Name: peft\nRequires-Dist: transformers\n")
    served.files[served.add("peft", "1.0")] = packed.getvalue()
    assert index.metadata(index.releases("peft")[0]).requires == ("transformers",)
    assert len(served.asked) == 3, served.asked


def test_metadata_of_its_own_file_spares_the_wheel(served: JsonIndex, index: Index) -> None:
    served.metadata[served.add("peft", "1.0")] = "Name: peft\nRequires-Dist: torch>=1.13\n"
    assert index.metadata(index.releases("peft")[0]).requires == ("torch>=1.13",)
    assert [path for path, _ in served.asked] == ["/simple/peft/", "/files/peft-1.0-py3-none-any.whl.metadata"]


def test_a_project_that_the_index_lacks_is_named(served: JsonIndex, index: Index) -> None:
    with pytest.raises(
        UserError, match=r"^The package index \S+/simple has no package pefd: look at how it is spelt\.$"
    ):
        index.releases("pefd")


def test_an_index_that_ends_in_the_middle_is_one_sentence(served: JsonIndex, index: Index) -> None:
    served.add("peft", "1.0")
    served.answers = 1
    release = index.releases("peft")[0]
    with pytest.raises(
        UserError, match=r"does not say what peft-1\.0-py3-none-any\.whl asks for \(.+\): run the command"
    ):
        index.metadata(release)
    with pytest.raises(UserError, match=r"gave no answer for torch \(.+\): see whether .*PIP_INDEX_URL"):
        index.releases("torch")


def test_a_release_of_source_only_says_nothing(index: Index) -> None:
    release = parse_project({"name": "a", "files": [{"filename": "a-1.0.tar.gz"}]})[0]
    with pytest.raises(UserError, match=r"^a 1\.0 has no wheel, which would say"):
        index.metadata(release)


def test_a_wheel_that_is_none_is_said(served: JsonIndex, index: Index) -> None:
    served.files[served.add("peft", "1.0")] = b"a page of the proxy's"
    with pytest.raises(UserError, match=r"asks for \(File is not a zip file\)"):
        index.metadata(index.releases("peft")[0])


def test_the_index_adds_to_what_is_known(served: JsonIndex, index: Index) -> None:
    served.add("peft", "0.15.2", "Requires-Dist: accelerate>=0.21.0\n", upload_time="2025-04-15T10:00:00Z")
    served.add("peft", "0.19.0")
    served.add("accelerate", "0.16.0")
    table = Known({"accelerate": {"0.16.0": ReleaseRow("2023-01-31", bounds={"torch": ">=1.4.0"})}})
    known = known_releases.ask(index, table, {"peft": "0.15.2", "accelerate": "0.16.0"})
    assert known.row("peft", "0.15.2").bounds == {"accelerate": ">=0.21.0"}
    assert (known.row("peft", "0.15.2").day, known.row("peft", "0.19.0").bounds) == ("2025-04-15", None)
    assert known.row("accelerate", "0.16.0") is table.row("accelerate", "0.16.0"), "the table has it already"
    assert known.complete == {"peft", "accelerate"}
    assert faults(Combination({"peft": "0.15.2", "accelerate": "0.16.0"}), known) == [
        "peft 0.15.2 wants accelerate >=0.21.0, and not 0.16.0: choose another version of peft or accelerate."
    ]


def test_the_newest_that_fits_is_asked_for_until_it_is_known(served: JsonIndex, index: Index) -> None:
    for version, least in {"0.13.0": "0.10", "0.15.2": "0.21.0", "0.19.0": "0.30", "0.20.0rc1": "0.1"}.items():
        served.add("peft", version, f"Requires-Dist: accelerate>={least}\n")
    found, known = known_releases.ask_newest(index, Known({}), "peft", Combination({"accelerate": "0.16.0"}))
    assert found == "0.13.0"
    assert known.row("peft", "0.19.0").bounds == {"accelerate": ">=0.30"}
    with pytest.raises(UserError, match=r"^No release of peft that goes with accelerate 0\.1 was found"):
        known_releases.ask_newest(index, known, "peft", Combination({"accelerate": "0.1"}))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://art.corp/api/pypi/one/simple/peft/", ("a", "1")),
        ("https://art.corp/api/pypi/two/simple/peft/", ("b", "p@ss")),
        ("https://art.corp/api/pypi/two/packages/peft.whl", ("b", "p@ss")),
        ("https://art.corp/api/pypi/twofold/simple/peft/", ("a", "1")),
        ("https://ART.corp/api/pypi/two/simple/peft/", ("b", "p@ss")),
        ("https://art.corp:8443/api/pypi/one/simple/peft/", None),
        ("http://art.corp/api/pypi/one/simple/peft/", None),
        ("https://files.corp/api/pypi/one/peft.whl", None),
        ("https://open.corp/simple/peft/", None),
    ],
)
def test_two_indexes_on_one_host_have_a_login_each(url: str, expected: tuple[str, str] | None) -> None:
    indexes = ["https://a:1@art.corp/api/pypi/one/simple", "https://b:p%40ss@art.corp/api/pypi/two/simple"]
    assert login_for(url, [*indexes, "https://open.corp/simple"]) == expected


def test_a_requires_python_that_is_not_valid_is_ignored_as_pip_does() -> None:
    """nltk 3.6.2 has it on PyPI."""
    known = Known({"nltk": {"3.6.2": ReleaseRow(requires_python=">=3.5.*")}})
    assert faults(Combination({"nltk": "3.6.2"}), known) == []
    (release,) = parse_project({"name": "a", "files": [{"filename": "a-1.0.tar.gz", "requires-python": ">=3.5.*"}]})
    assert release.is_for("3.11")
