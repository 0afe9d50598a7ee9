"""Why a combination can't be, and which version could; of the committed table, whose facts don't change."""

from dataclasses import replace

import pytest

from berth.common.errors import UserError
from berth.contract import gpu_hosts
from berth.images import compatibility_table, pins
from berth.images.combinations import (
    Combination,
    Known,
    ReleaseRow,
    can_both_be,
    cuda_parts_of,
    faults,
    nearest,
    newest_that_fits,
    torchvision_of,
)

KIT = pins.load()
TABLE = compatibility_table.load()
SMALL = Known(
    releases={
        "torch": {
            "1.12.1": ReleaseRow("2022-08-05", ">=3.7.0", ("3.7", "3.8", "3.9", "3.10")),
            "2.2.2": ReleaseRow("2024-03-27", ">=3.8.0", ("3.8", "3.11"), {}, {"cuda": "12.1"}),
            "2.5.1": ReleaseRow("2024-10-29", ">=3.8.0", ("3.9", "3.11"), {}, {"cuda": "12.4"}),
            "2.6.0": ReleaseRow("2025-01-29", ">=3.9.0", ("3.9", "3.11"), {}, {"cuda": "12.4"}),
            "2.13.0": ReleaseRow("2026-07-08", ">=3.10", ("3.10", "3.11"), {}, {"cuda": "13.0.3"}),
        },
        "transformers": {
            "4.2.0": ReleaseRow("2021-01-13", ">=3.6.0", bounds={"tokenizers": "==0.9.4", "torch": ">=1.0"}),
            "4.26.0": ReleaseRow(
                "2023-01-25", ">=3.7.0", bounds={"torch": ">=1.7", "huggingface-hub": "<1.0,>=0.11.0"}
            ),
            "5.15.0": ReleaseRow("2026-08-01", ">=3.10", bounds={"torch": ">=2.4", "huggingface-hub": "<3.0,>=1.3"}),
            "5.23.0": ReleaseRow("2026-11-13", ">=3.11", bounds={"torch": ">=2.6", "huggingface-hub": "<3.0,>=1.31"}),
            "6.0.0": ReleaseRow("2026-11-20", ">=3.12", bounds={}),
            "6.1.0rc1": ReleaseRow("2026-11-21", ">=3.11", bounds={}),
            "6.0.1": ReleaseRow("2026-11-22", ">=3.11", bounds={}, yanked=True),
        },
        "datasets": {
            "2.9.0": ReleaseRow("2023-01-26", ">=3.7.0", bounds={"huggingface-hub": "<1.0,>=0.2", "pyarrow": ">=6.0"}),
            "5.2.0": ReleaseRow("2026-10-01", ">=3.10", bounds={"huggingface-hub": "<3.0,>=1.31", "pyarrow": ">=24.0"}),
        },
        "tokenizers": {"0.9.4": ReleaseRow(pythons=("3.6", "3.9")), "0.13.3": ReleaseRow(pythons=("3.9", "3.11"))},
        "numpy": {
            "1.26.4": ReleaseRow("2024-02-05", ">=3.9", ("3.9", "3.11")),
            "2.4.0": ReleaseRow("2025-12-20", ">=3.11", ("3.11", "3.12")),
        },
    },
    complete=frozenset({"transformers"}),
    drivers={"12.0": 525, "13.0": 580},
    numpy_2="2024-06-16",
)


def of(cuda: str = "", constraints: tuple[str, ...] = (), day: str = "", **versions: str) -> list[str]:
    return faults(Combination(versions, cuda=cuda, constraints=constraints, day=day), SMALL)


def test_what_goes_together_has_no_fault() -> None:
    assert of(torch="2.13.0+cpu", transformers="5.23.0", datasets="5.2.0") == []
    assert of("13.0.3", torch="2.13.0", transformers="5.23.0") == []
    assert of("13.0.3", torch="2.5.1", transformers="5.15.0") == [], "an older CUDA runs on newer drivers"
    assert of(torch="2.13.0", peft="0.15.2") == [], "nothing is known of it"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            of(torch="2.5.1", transformers="5.23.0"),
            "transformers 5.23.0 wants torch >=2.6, and not 2.5.1: choose transformers 5.15.0 or torch 2.13.0, the "
            "newest that go with the rest.",
        ),
        (
            of(torch="1.12.1", constraints=("numpy<2",)),
            "torch 1.12.1 has wheels for Python 3.7 to 3.10 only, and the base has Python 3.11: choose torch 2.13.0, "
            "the newest that goes with the rest.",
        ),
        (
            of(torch="2.13.0", transformers="6.0.0"),
            "transformers 6.0.0 is for Python >=3.12, and the base has Python 3.11: choose transformers 5.23.0, the "
            "newest that goes with the rest.",
        ),
        (
            of("12.4", torch="2.13.0"),
            "torch 2.13.0 is built for CUDA 13.0.3, which needs driver 580 or newer, and the hardware is for CUDA "
            "12.4, with drivers from 525 on: choose torch 2.6.0, the newest that goes with the rest.",
        ),
        (
            of(transformers="4.26.0", datasets="5.2.0"),
            "transformers 4.26.0 wants huggingface-hub <1.0,>=0.11.0, and datasets 5.2.0 wants huggingface-hub "
            "<3.0,>=1.31: choose transformers 5.23.0 or datasets 2.9.0, the newest that go with the rest.",
        ),
        (
            of(transformers="4.2.0"),
            "transformers 4.2.0 wants tokenizers ==0.9.4, of which no release has a wheel for Python 3.11, the base's: "
            "choose transformers 5.23.0, the newest that goes with the rest.",
        ),
        (
            of(constraints=("pyarrow<19",), datasets="5.2.0"),
            "datasets 5.2.0 wants pyarrow >=24.0, and the constraint pyarrow<19 is set: choose datasets 2.9.0, the "
            "newest that goes with the rest, or take the constraint out.",
        ),
        (
            of(torch="2.2.2"),
            "torch 2.2.2 of 2024-03-27 is built against numpy 1 (2 came on 2024-06-16), and numpy would be 2.4.0: add "
            "the constraint numpy<2.",
        ),
        (
            of(torch="2.2.2", numpy="2.4.0"),
            "torch 2.2.2 of 2024-03-27 is built against numpy 1 (2 came on 2024-06-16), and numpy would be 2.4.0: "
            "choose torch 2.13.0 or numpy 1.26.4, the newest that go with the rest.",
        ),
        (
            of(transformers="5.17.0"),
            "transformers 5.17.0 was never released: the nearest are 5.15.0 and 5.23.0.",
        ),
        (of(transformers="five"), "transformers five was never released: the nearest is 6.0.0."),
    ],
    ids=lambda value: "" if isinstance(value, str) else None,
)
def test_a_fault_names_the_two_and_what_could_be(found: list[str], expected: str) -> None:
    assert found == [expected]


def test_numpy_1_is_enough_for_an_old_torch() -> None:
    assert of(torch="2.2.2", constraints=("numpy<2",)) == []
    assert of(torch="2.2.2", day="2024-05-01") == [], "as of that day there is no numpy 2"
    assert of(torch="2.2.2", numpy="1.26.4") == []


def test_a_version_may_be_spelt_otherwise() -> None:
    assert [each.partition(":")[0] for each in of(transformers="5.23", torch="2.5.1")] == [
        "transformers 5.23 wants torch >=2.6, and not 2.5.1"
    ]


def test_a_remedy_is_a_release_of_which_something_is_known() -> None:
    unknown = {**SMALL.releases["transformers"], "5.22.9": ReleaseRow("2026-11-01", ">=3.11")}
    known = replace(SMALL, releases={**SMALL.releases, "transformers": unknown})
    asked = Combination({"torch": "2.5.1", "transformers": "5.23.0"})
    assert "choose transformers 5.15.0 or" in faults(asked, known)[0]
    assert newest_that_fits("transformers", asked, known) == "5.22.9"


def test_every_fault_is_named() -> None:
    found = of("12.4", torch="2.13.0", transformers="4.26.0", datasets="5.2.0")
    assert [each.partition(",")[0] for each in found] == [
        "torch 2.13.0 is built for CUDA 13.0.3",
        "transformers 4.26.0 wants huggingface-hub <1.0",
    ]


def test_the_newest_that_fits_is_final_not_withdrawn_and_of_its_day() -> None:
    assert newest_that_fits("transformers", Combination({"torch": "2.13.0"}), SMALL) == "5.23.0"
    assert newest_that_fits("transformers", Combination({"torch": "2.5.1"}), SMALL) == "5.15.0"
    assert newest_that_fits("transformers", Combination({}, day="2024-01-01"), SMALL) == "4.26.0"
    assert newest_that_fits("transformers", Combination({}, constraints=["transformers<5"]), SMALL) == "4.26.0"
    assert newest_that_fits("torch", Combination({"transformers": "5.23.0"}, cuda="12.4"), SMALL) == "2.6.0"
    assert newest_that_fits("torch", Combination({"transformers": "5.23.0"}, python="3.8"), SMALL) == ""
    assert newest_that_fits("peft", Combination({}), SMALL) == ""


@pytest.mark.parametrize(
    ("specifiers", "expected"),
    [
        (["<1.0,>=0.11", ">=1.31,<3"], False),
        (["<1.0,>=0.11", ">=0.20"], True),
        (["==0.9.4", "<0.10"], True),
        (["<0.14", "<0.20"], True),
        (["<2", ">1.26.4"], True),
        (["==9.1.0.70", "==9.20.0.*"], False),
        (["==9.20.0.48", "==9.20.0.*"], True),
        (["~=3.9.0", "==3.8.1"], False),
        (["!=1.0"], True),
        (["", ""], True),
    ],
)
def test_two_bounds_leave_a_version_or_none(specifiers: list[str], expected: bool) -> None:
    assert can_both_be(specifiers) is expected


def test_the_nearest_versions() -> None:
    assert nearest("4.99.0", ["4.57.1", "5.0.0", "5.0.0rc1", "4.2"]) == ["4.57.1", "5.0.0"]
    assert nearest("9", ["4.57.1", "5.0.0"]) == ["5.0.0"]
    assert nearest("1", ["4.57.1", "5.0.0"]) == ["4.57.1"]
    assert nearest("1", []) == []


@pytest.mark.parametrize(
    "profile", [profile for profile in KIT.profiles.values() if profile.cuda], ids=lambda row: row.name
)
def test_the_table_agrees_with_the_pins_of_cuda(profile: pins.Profile) -> None:
    assert cuda_parts_of(profile.torch, TABLE) == dict(profile.cuda)
    assert torchvision_of(profile.torch, TABLE) == profile.packages.get("torchvision")


@pytest.mark.parametrize("profile", KIT.profiles.values(), ids=lambda row: row.name)
def test_the_kits_own_profiles_have_no_fault(profile: pins.Profile) -> None:
    versions = {name: profile.packages[name] for name in ("torch", "transformers", "accelerate", "datasets")}
    software, cuda = profile.software, profile.cuda.get("cuda", "")
    asked = Combination(versions, profile.python, cuda, software.constraints, software.day)
    assert faults(asked, TABLE) == []


def test_torch_of_an_open_torchvision_takes_the_one_of_its_day() -> None:
    assert torchvision_of("2.14.1", TABLE) == "0.29.1"
    assert torchvision_of("1.0", TABLE) == ""


def test_parts_that_are_not_known_are_said_with_the_nearest() -> None:
    with pytest.raises(
        UserError, match=r"^Which CUDA torch 2\.5\.7 is built for is not known: choose 2\.5\.1 or 2\.6\.0"
    ):
        cuda_parts_of("2.5.7", TABLE)


def test_the_drivers_are_those_that_an_image_asks_for() -> None:
    """The fact stands in runtime/gpu/compatibility.py, which the machine's side does not import."""
    for torch, row in TABLE.releases["torch"].items():
        cuda = gpu_hosts.parse(row.cuda["cuda"])
        first = gpu_hosts.dotted(gpu_hosts.minimum(cuda))
        assert TABLE.drivers[first] == gpu_hosts.needed_driver(cuda), torch


def test_a_driver_that_the_table_lacks_is_said_by_its_cuda() -> None:
    found = faults(Combination({"torch": "2.13.0"}, cuda="12.4"), replace(SMALL, drivers={}))
    assert "needs a driver for CUDA 13.0 or newer" in found[0]


def test_the_days_of_a_set_do_not_count_for_torch() -> None:
    """The hardware dictates it: a set of 2024 may have a torch that came out later."""
    wanted = Combination({"transformers": "4.46.3"}, cuda="12.4", day="2024-12-18")
    known = TABLE
    fitting = newest_that_fits("torch", wanted, known)
    assert known.row("torch", fitting).day > wanted.day
    assert known.row("torch", fitting).cuda["cuda"].startswith("12.")
