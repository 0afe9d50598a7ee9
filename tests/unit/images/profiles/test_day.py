"""As of which day a set is resolved, and what can't be as of it."""

import datetime

import pytest

from berth.images.combinations import Known, ReleaseRow
from berth.images.profiles.day import day_faults, day_of, newest_of

KNOWN = Known(
    {
        "transformers": {"4.46.3": ReleaseRow("2024-11-18")},
        "peft": {"0.14.0": ReleaseRow("2024-12-06"), "0.15.0": ReleaseRow("2025-03-19"), "0.15.0rc1": ReleaseRow()},
        "numpy": {
            "1.26.4": ReleaseRow("2024-02-05"),
            "2.3.0": ReleaseRow("2025-06-07"),
            "2.3.0.post1": ReleaseRow("2025-06-09"),
        },
    }
)


@pytest.mark.parametrize(
    ("newest", "day"), [("", ""), ("2024-11-18", "2024-12-18"), ("2026-03-01", "2026-03-31"), ("2026-03-03", "")]
)
def test_a_set_is_resolved_as_of_a_month_after_its_newest_version(newest: str, day: str) -> None:
    assert day_of(newest, datetime.date(2026, 4, 2)) == day
    assert newest_of({"transformers": "4.46.3", "peft": "0.15"}, KNOWN) == ("2025-03-19", "peft")
    assert newest_of({}, KNOWN) == ("", "")


@pytest.mark.parametrize(
    ("versions", "bounds", "day", "said"),
    [
        ({"transformers": "4.46.3"}, [], "2024-11-18", []),
        ({"transformers": "4.46.3"}, ["numpy<2", "peft>=0.14"], "2024-12-18", []),
        ({"transformers": "4.46.3"}, ["numpy>=2.3"], "", []),
        (
            {"transformers": "4.46.3"},
            [],
            "2024-01-01",
            [
                "transformers 4.46.3 came out on 2024-11-18, and all else would be as of 2024-01-01: give --day "
                "2024-11-18 or a later one, or choose older versions."
            ],
        ),
        (
            {},
            ["Numpy>=2.3"],
            "2024-12-18",
            [
                "the first Numpy>=2.3 (2.3.0) came out on 2025-06-07, and all else would be as of 2024-12-18: give "
                "--day 2025-06-07 or a later one, or choose older versions."
            ],
        ),
        (
            {"transformers": "4.46.3", "peft": "0.15"},
            ["numpy>2.3.0"],
            "2024-01-01",
            [
                "transformers 4.46.3 came out on 2024-11-18 and peft 0.15 came out on 2025-03-19, and all else would "
                "be as of 2024-01-01: give --day 2025-03-19 or a later one, or choose older versions."
            ],
        ),
    ],
)
def test_what_came_out_after_the_day_is_one_sentence_with_the_day_that_would_do(
    versions: dict[str, str], bounds: list[str], day: str, said: list[str]
) -> None:
    assert day_faults(versions, bounds, day, KNOWN) == said
