"""Imported first, for its effects."""


def setup_environment() -> None:
    pass
