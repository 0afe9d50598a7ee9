"""What a registry asks for: a name and a password, kept in memory only."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Credentials:
    """A name and a password for one registry; the password shows in no repr, and so in no log or traceback."""

    username: str
    password: str = field(repr=False)


Login = Callable[[bool], Credentials | None]
"""`login(renew)` gives what to log in with, None for a registry that asks for nothing.

With `renew`, what was given before has been refused, and a new token is fetched even if the old one should still hold.
"""
