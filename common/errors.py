"""The one error of what runs on the user's machine: a mistake or a lack that the user can fix, in one sentence."""

from collections.abc import Iterable


class UserError(Exception):
    """One sentence that says what is wrong and what to do; the command line prints it and exits with `exit_code`."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def refuse(*problems: Iterable[str], opening: str = "") -> None:
    """UserError with all problems, a sentence each, if there are any, each once; `opening` comes before the first."""
    found = list(dict.fromkeys(sentence for several in problems for sentence in several))
    if found:
        raise UserError(opening + " Also, ".join(found))
