"""UserError is for everything that the user can fix; `refuse` and `Problems` report several problems together."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """One sentence per problem: what is wrong and what to do. The command line prints it and exits with `exit_code`."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def refuse(*problems: Iterable[str], opening: str = "") -> None:
    """Raises a UserError with all problems (sentences), one per line and without duplicates, if there are any.

    opening: the words before the first problem.
    """
    found = list(dict.fromkeys(sentence for group in problems for sentence in group))
    if found:
        raise UserError(opening + "\n".join(found))


class Problems:
    """Collects problems to report them together: a check calls `add`, or raises in a `with problems.noted():` block."""

    def __init__(self) -> None:
        self._found: list[UserError] = []

    def add(self, sentence: str, exit_code: int = 1) -> None:
        """Adds a problem. exit_code: the command's exit code if all problems have the same."""
        self._found.append(UserError(sentence, exit_code))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Catches a UserError of the block and adds it."""
        try:
            yield
        except UserError as error:
            self._found.append(error)

    def refuse(self) -> None:
        """Raises a UserError with all problems, one per line and without duplicates, if there are any."""
        if self._found:
            codes = {each.exit_code for each in self._found}
            raise UserError("\n".join(dict.fromkeys(map(str, self._found))), codes.pop() if len(codes) == 1 else 1)
