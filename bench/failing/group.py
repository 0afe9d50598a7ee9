"""Raises a group of exceptions, as asyncio's TaskGroup does."""


def rows() -> list[Exception]:
    found: list[Exception] = []
    for text in ("a", "b"):
        try:
            int(text)
        except ValueError as error:
            found.append(error)
    return found


raise ExceptionGroup("two rows are bad", rows())
