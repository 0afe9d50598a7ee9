"""What an error of HTTP says: in a few words, on one line, and without passwords. Pure."""

import re


def without_password(text: str) -> str:
    """A text with the user and password of every URL in it left out, up to the last @ before its path."""
    return re.sub(r"//[^/\s]*@", "//", text)


def innermost(error: BaseException) -> BaseException:
    """The cause at the bottom of an error of requests and urllib3, which wrap each other's."""
    while any(each.__module__.partition(".")[0] in ("requests", "urllib3") for each in type(error).__mro__):
        inner = error.__cause__ or error.__context__ or next((a for a in error.args if isinstance(a, Exception)), None)
        if inner is None:
            break
        error = inner
    return error


def in_few_words(error: BaseException | str) -> str:
    """What an error says, on one line and without passwords."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return without_password(" ".join(str(text).split()))[:160].rstrip(".")
