"""Several problems reported as one error."""

import pytest

from berth.common.errors import Problems, UserError, refuse


@pytest.mark.parametrize("opening", ["", "the image can't be had: "])
def test_refuse_reports_each_problem_once_after_the_opening(opening: str) -> None:
    with pytest.raises(UserError) as refusal:
        refuse(["a is long: cut it."], [], iter(["b is empty: fill it.", "a is long: cut it."]), opening=opening)
    assert str(refusal.value) == f"{opening}a is long: cut it.\nb is empty: fill it."


def test_refuse_without_problems_raises_nothing() -> None:
    refuse()
    refuse([], (), opening="the image can't be had: ")


def test_problems_reports_errors_of_several_checks() -> None:
    problems = Problems()
    problems.refuse()
    for sentence in ("a is missing.", "b is empty.", "a is missing."):
        with problems.noted():
            raise UserError(sentence, 2)
    with pytest.raises(UserError) as refusal:
        problems.refuse()
    assert (str(refusal.value), refusal.value.exit_code) == ("a is missing.\nb is empty.", 2)
    problems.add("c is long.")
    with pytest.raises(UserError) as refusal:
        problems.refuse()
    assert refusal.value.exit_code == 1
