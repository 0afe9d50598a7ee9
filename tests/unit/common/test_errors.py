"""Problems as one error."""

import pytest

from berth.common.errors import UserError, refuse


def test_everything_is_said_at_once_and_once() -> None:
    with pytest.raises(UserError) as refusal:
        refuse(["a is too long: shorten it."], [], iter(["b is empty: fill it.", "a is too long: shorten it."]))
    assert str(refusal.value) == "a is too long: shorten it. Also, b is empty: fill it."


def test_an_opening_comes_before_the_first() -> None:
    with pytest.raises(UserError) as refusal:
        refuse(["one.", "two."], opening="the image can't be had: ")
    assert str(refusal.value) == "the image can't be had: one. Also, two."


def test_without_a_problem_nothing_is_refused() -> None:
    refuse()
    refuse([], (), opening="the image can't be had: ")
