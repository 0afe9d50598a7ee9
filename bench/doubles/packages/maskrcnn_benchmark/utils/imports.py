"""Imported and not called."""


def import_file(*_: object) -> None:
    pass
