"""Limits on what one request may ask for, and on what the server holds at a time.

A model server can't cheaply abandon work that it has begun, so everything is counted first: bytes before records,
records before JSON, characters before tokens, tokens before the model, spans before their texts. The speeds behind the
numbers were measured on one core of a server CPU in float32: a MiniLM of 6 layers does 3,500 to 4,000 tokens a second,
a BERT-base 600 to 650; tokenising takes up to 7 µs and 700 bytes for a character that is a whole token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from berth.serve.errors import Kind, ServeError

MEBIBYTE = 1024 * 1024

PAYLOAD = 25 * MEBIBYTE
REQUEST_TOKENS = 32_768
TOKENS_VARIABLE = "BERTH_MAX_REQUEST_TOKENS"
PAYLOAD_VARIABLE = "SAGEMAKER_MAX_PAYLOAD_IN_MB"

# Lowest and highest value of each parameter; for the three that count tokens, the model's own limits are tighter. No
# answer is longer than a window of the default length, 384 tokens; nobody needs more than 1,000 answers to a question.
BOUNDS = {
    "top_k": (1, 1000),
    "max_answer_len": (1, 384),
    "max_question_len": (1, 100_000),
    "max_seq_len": (1, 100_000),
    "doc_stride": (0, 100_000),
}


class BodyTooLargeError(ServeError):
    """The records of a body together exceed a limit, so none is answered."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """All limits except the bounds of parameters. The first four and `seconds` depend on the container."""

    tokens: int = REQUEST_TOKENS
    """Tokens of all windows of one record: 85 windows of 384, which a BERT-base answers in 52 s on one core. SageMaker
    waits 60 s for a real-time answer; a batch transform can wait longer."""
    payload: int = PAYLOAD
    """Most bytes of a body; for our own model `body` also applies."""
    batch: bool = False
    """Whether requests come from a batch transform, which waits for minutes and sends many records in one body."""
    open_files: int = 65_536
    """File descriptors that this process may have."""

    window_tokens: int = 32
    """A shorter window counts as this many tokens, because a window has a fixed cost of 20 to 30 tokens."""
    compared_characters: int = 16_000_000
    """Characters of the spans whose texts are compared to merge equal ones: 0.1 s, at most 64 MB."""
    answer_characters: int = 1_000_000
    """Characters of the texts of all answers to a record; see `body_answer_characters`."""
    seconds: float = 55.0
    """Time limit from a request's header to its answer. SageMaker gives up a real-time request after 60 s."""
    bodies: int = 64 * MEBIBYTE
    """Bytes of all bodies from the first byte to the answer; with their strings they take five times as much."""

    @property
    def characters(self) -> int:
        """Characters of all questions and contexts of a record. English has 4 to 5 per token, and overlapping windows
        repeat a third of the tokens.

        Texts of that length take at most 0.9 s to tokenise.
        """
        return 4 * self.tokens

    @property
    def records(self) -> int:
        """Records in one body: each has at least one window. They are counted before any is decoded."""
        return self.body_tokens // self.window_tokens

    @property
    def record_characters(self) -> int:
        """Characters of one record as it is sent; a longer one is not decoded. Decoded JSON takes up to 30 bytes per
        character.
        """
        return 16 * self.characters

    @property
    def body_characters(self) -> int:
        """Characters of all questions and contexts of a body: tokenising takes time even if all records are refused."""
        return 4 * self.body_tokens

    @property
    def answers(self) -> int:
        """Answers that all records of a body may ask for, `top_k` per window. Each takes up to 800 bytes, including its
        competing spans and its part of the response.
        """
        return 4 * self.tokens

    @property
    def body_answer_characters(self) -> int:
        """Characters of the texts of all answers to a body; its errors may have as many again. The best answer to each
        record always fits, because it is a part of the record's context.
        """
        return max(self.answer_characters, 2 * self.body_characters)

    @property
    def body(self) -> int:
        """Bytes of one body for our own model."""
        return min(self.payload, self.body_of_tokens)

    @property
    def body_of_tokens(self) -> int:
        """Bytes of one body as its tokens limit it: 4 characters per token, each of at most 12 bytes (an escaped pair
        of surrogates), and the JSON around them.
        """
        return 16 * 4 * self.body_tokens

    @property
    def held_bodies(self) -> int:
        """`bodies`, but at least room for two of the largest."""
        return max(self.bodies, 2 * self.body)

    @property
    def unread_bodies(self) -> int:
        """Bytes of bodies that wait for the one thread that reads and tokenises: less than a minute of work."""
        return 4 * self.body

    @property
    def waiting_tokens(self) -> int:
        """Tokens that may wait for a fast model; a slow one reaches its time limit first. Each takes 40 bytes."""
        return 64 * self.tokens

    @property
    def body_tokens(self) -> int:
        """Tokens of all windows of one body. A batch transform fills a body of 6 MB with thousands of records;
        there only the time limit matters.
        """
        return self.waiting_tokens if self.batch else self.tokens

    @property
    def connections(self) -> int:
        """Connections at a time; 256 descriptors are left for files, and for a burst accepted before any closes."""
        return max(16, min(4096, self.open_files - 256))

    @property
    def requests(self) -> int:
        """Requests that wait for an answer: half of the connections, so that /ping always gets one."""
        return self.connections // 2

    def check_records(self, count: int) -> None:
        """BodyTooLargeError (413) if a body has too many records."""
        if count > self.records:
            raise self.body_has_too_many("records", self.records)

    def check_texts(self, texts: Sequence[tuple[str, str]]) -> int:
        """Count the characters of these questions and contexts; ServeError (413) if there are too many."""
        characters = sum(len(question) + len(context) for question, context in texts)
        if characters > self.characters:
            raise ServeError(
                Kind.TOO_LARGE,
                f"questions and contexts have {characters} characters in all, over the limit of {self.characters}: "
                f"send fewer or shorter ones at once, or raise {TOKENS_VARIABLE}",
            )
        return characters

    def check_answers(self, windows: int, top_k: int) -> None:
        """ServeError (413) if `top_k` answers per window are too many."""
        answers = windows * top_k
        if answers > self.answers:
            raise ServeError(
                Kind.TOO_LARGE,
                f"`top_k` is {top_k} and the request makes {windows} windows, which gives {answers} answers, over the "
                f"limit of {self.answers}: lower `top_k`, send less at once, or raise {TOKENS_VARIABLE}",
            )

    def too_many_windows(self, windows: int, tokens: int) -> ServeError:
        """The error (413) for a record with at least that many windows and tokens."""
        return ServeError(
            Kind.TOO_LARGE,
            f"the request makes {windows} windows with {tokens} tokens in all, over the limit of {self.tokens} tokens: "
            f"send fewer questions, a shorter context or a smaller doc_stride, or raise {TOKENS_VARIABLE}",
        )

    def record_too_long(self, characters: int) -> ServeError:
        """The error (413) for a record that is too long to be decoded."""
        return ServeError(
            Kind.TOO_LARGE,
            f"the record has {characters} characters, over the limit of {self.record_characters}: send a shorter "
            f"context, or raise {TOKENS_VARIABLE}",
        )

    def body_has_too_many(self, what: str, most: int) -> "BodyTooLargeError":
        """The error (413) for a body with more than `most` of `what`, such as records."""
        advice = "lower the job's MaxPayloadInMB" if self.batch else "send fewer records at once"
        return BodyTooLargeError(
            Kind.TOO_LARGE, f"the body has more than {most} {what}: {advice}, or raise {TOKENS_VARIABLE}"
        )


_HANDLER_BODIES = 1024 * MEBIBYTE
"""Bytes of all bodies for a handler at a time, unless two of the largest need more."""
_MOST_DRAINED_BEYOND = 1024 * MEBIBYTE
"""Bytes above the limit of one body that are read and discarded, at most."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The limits of one service, in bytes."""

    most: int
    """Bytes of one body."""
    at_once: int
    """Bytes of all bodies from the first byte to the answer. admission.py limits the whole server's by its memory."""
    drained: int
    """Bytes of a refused body that are read and discarded, so that a client that is still sending gets the response."""
    in_transform: int
    """Bytes of one body in a batch transform, for /execution-parameters."""
    advice: str
    """What to do about a body that is too large, with the variable that raises `most`."""

    def too_large(self, size: str, *, close: bool = False) -> ServeError:
        """The error (413) for a body of that size."""
        sentence = f"the body has {size} bytes, over the limit of {self.most}: {self.advice}"
        return ServeError(Kind.TOO_LARGE, sentence, close=close)


LOAD_REQUEST = BodyLimits(MEBIBYTE, MEBIBYTE, 2 * MEBIBYTE, 0, "send a model's name and folder alone")
"""The limits of POST /models."""


def for_questions(limits: RequestLimits) -> BodyLimits:
    """The limits of our own model, whose tokens per body are limited."""
    variable = PAYLOAD_VARIABLE if limits.body == limits.payload else TOKENS_VARIABLE
    advice = f"send fewer questions at once, or raise {variable}"
    in_transform = replace(limits, batch=True).body_of_tokens
    return BodyLimits(limits.body, limits.held_bodies, _drained(limits), in_transform, advice)


def for_handler(limits: RequestLimits) -> BodyLimits:
    """The limits of a handler, whose bodies may hold anything: as many bytes as SageMaker sends, 25 MB to an endpoint
    and up to 100 MB in a batch transform, which sets SAGEMAKER_MAX_PAYLOAD_IN_MB.
    """
    at_once = max(_HANDLER_BODIES, 2 * limits.payload)
    advice = f"send less at once, or raise {PAYLOAD_VARIABLE}"
    return BodyLimits(limits.payload, at_once, _drained(limits), limits.payload, advice)


def _drained(limits: RequestLimits) -> int:
    return limits.payload + min(limits.payload, _MOST_DRAINED_BEYOND)
