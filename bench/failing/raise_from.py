"""Raises an exception with a cause."""


def column(row: dict[str, int]) -> int:
    return row["label"]


def main() -> None:
    try:
        column({"text": 1})
    except KeyError as error:
        raise RuntimeError("rows.csv can't be read") from error


main()
