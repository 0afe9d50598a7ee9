"""Raises an exception while it handles another one."""


def main() -> None:
    try:
        {}["label"]
    except KeyError:
        open("no-such-file.csv")


main()
