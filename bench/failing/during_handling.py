"""An exception that came while another was handled."""


def main() -> None:
    try:
        {}["label"]
    except KeyError:
        open("no-such-file.csv")


main()
