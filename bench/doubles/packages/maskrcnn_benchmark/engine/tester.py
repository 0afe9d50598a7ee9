"""Imported, and called where each pass is evaluated only."""


def test(*_: object, **__: object) -> None:
    pass
