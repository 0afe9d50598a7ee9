"""HTTP errors in few words, on one line and without passwords. Pure."""

import re


def without_password(text: str) -> str:
    """The text without user and password in its URLs: all up to the last @ before the path is removed."""
    return re.sub(r"//[^/\s]*@", "//", text)


def innermost(error: BaseException) -> BaseException:
    """The innermost cause of an error of requests or urllib3, which wrap each other's errors."""
    while any(each.__module__.partition(".")[0] in ("requests", "urllib3") for each in type(error).__mro__):
        inner = error.__cause__ or error.__context__ or next((a for a in error.args if isinstance(a, Exception)), None)
        if inner is None:
            break
        error = inner
    return error


def in_few_words(error: BaseException | str) -> str:
    """An error's message on one line, without passwords, at most 160 characters."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return without_password(" ".join(str(text).split()))[:160].rstrip(".")
