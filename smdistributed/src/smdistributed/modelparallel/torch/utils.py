"""The function of smp.utils that published scripts use."""

from .groups import rank


def rmsg(message: object) -> str:
    """A message with this rank's number before it."""
    return f"[{rank()}] {message}"
