"""URLs without passwords."""

import pytest

from berth.common.http import without_password


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:p@host/x", "https://host/x"),
        ("https://u:p@ss@host/x", "https://host/x"),
        ("see https://u:p:@@host and http://v@other/y@z.", "see https://host and http://other/y@z."),
        ("https://host/x@y", "https://host/x@y"),
    ],
)
def test_without_password_removes_all_up_to_the_last_at_sign(text: str, shown: str) -> None:
    assert without_password(text) == shown
