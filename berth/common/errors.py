"""The one error of what runs on the user's machine: a mistake or a lack that the user can fix, in one sentence."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


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


class Problems:
    """What several checks find wrong, to be said at once: each runs in a `with problems.noted():`."""

    def __init__(self) -> None:
        self._found: list[UserError] = []

    def add(self, sentence: str, exit_code: int = 1) -> None:
        """One more problem; exit_code: what the command ends with if there is no other."""
        self._found.append(UserError(sentence, exit_code))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keeps a UserError that ends the block."""
        try:
            yield
        except UserError as error:
            self._found.append(error)

    def refuse(self) -> None:
        """UserError with all of them, each once, if there are any."""
        if self._found:
            codes = {each.exit_code for each in self._found}
            raise UserError(" Also, ".join(dict.fromkeys(map(str, self._found))), codes.pop() if len(codes) == 1 else 1)
