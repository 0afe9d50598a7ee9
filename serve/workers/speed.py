"""How fast the workers are: learnt from the batches that came back, and from those that still run."""

from collections.abc import Iterable

_MEMORY = 0.9
"""What a batch counts for after each one that came behind it."""
_WARM_UP_TOKENS = 32
"""What the warm-up question counts for: less than a batch of usual length, which soon outweighs it."""


class Speed:
    """Seconds of one slot for a token, of which a handler's request counts as one. Nothing is known at first."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._tokens = 0.0

    def begin(self, seconds_per_token: float) -> None:
        """Take the speed of a worker's warm-up question for a start, unless something is known already."""
        if not self._tokens:
            self._seconds, self._tokens = seconds_per_token * _WARM_UP_TOKENS, _WARM_UP_TOKENS

    def note(self, seconds: float, tokens: int) -> None:
        """A batch of so many tokens kept a slot for so long."""
        self._seconds = _MEMORY * self._seconds + seconds
        self._tokens = _MEMORY * self._tokens + tokens

    def seconds_per_token(self, running: Iterable[tuple[float, int]] = ()) -> float:
        """As far as is known now; 0 before anything is.

        `running`: of each batch in flight, for how many seconds it has kept a slot, and its tokens. One that takes
        longer than expected counts as if it ended now. So the first request of a slow handler says how slow it is while
        it runs.
        """
        expected = self._seconds / self._tokens if self._tokens else 0.0
        late = [(seconds, tokens) for seconds, tokens in running if seconds > expected * tokens]
        if not late:
            return expected
        memory = _MEMORY ** len(late)
        seconds = memory * self._seconds + sum(seconds for seconds, _ in late)
        return seconds / (memory * self._tokens + sum(tokens for _, tokens in late))
