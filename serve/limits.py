"""How much one request may ask, and how much the server holds at one time.

A model server has no cheap way out of work that it has begun, so everything is counted before it is done: bytes before
records, records before JSON, characters before tokens, tokens before the model, spans before their texts. The
arithmetic behind the numbers was measured on one core of a server CPU: a MiniLM of 6 layers does 3,500 to 4,000 tokens
a second in float32, a BERT-base 600 to 650; tokenising takes up to 7 µs and 700 bytes for a character that is a token
of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from berth.serve.errors import Kind, ServeError

MEBIBYTE = 1024 * 1024

PAYLOAD = 25 * MEBIBYTE
REQUEST_TOKENS = 32_768
TOKENS_VARIABLE = "BERTH_MAX_REQUEST_TOKENS"
PAYLOAD_VARIABLE = "SAGEMAKER_MAX_PAYLOAD_IN_MB"

# Of `parameters`, the least and the most; the model's own limits are tighter for the three that count tokens. No answer
# is longer than a window of the default length, 384 tokens; more than 1,000 answers are nobody's shortlist.
BOUNDS = {
    "top_k": (1, 1000),
    "max_answer_len": (1, 384),
    "max_question_len": (1, 100_000),
    "max_seq_len": (1, 100_000),
    "doc_stride": (0, 100_000),
}


class BodyTooLargeError(ServeError):
    """All records of a body together ask too much, so that none is answered."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Every limit that is no bound of a parameter; the first four come from the outside, the others follow."""

    tokens: int = REQUEST_TOKENS
    """Tokens that one request may put through the model, those of all its windows: 85 windows of 384, which a BERT-base
    on one core answers in 52 s. SageMaker waits 60 s for a real-time answer; a batch transform can wait longer."""
    payload: int = PAYLOAD
    """Bytes of a body that may come; its tokens hold it to fewer, but in a batch transform (`body`)."""
    batch: bool = False
    """Whether requests come from a batch transform, which waits for minutes, and sends many records in one body."""
    open_files: int = 65_536
    """File descriptors that this process may have."""

    window_tokens: int = 32
    """What a shorter window counts as: the fixed cost of a window is that of 20 to 30 tokens."""
    compared_characters: int = 16_000_000
    """Of the spans whose texts are compared to merge equal ones: 0.1 s, at most 64 MB."""
    answer_characters: int = 1_000_000
    """Of the texts of all answers to a record; see `body_answer_characters`."""
    seconds: float = 55.0
    """From a request's header to its answer: SageMaker has given up a real-time one after 60."""
    bodies: int = 64 * MEBIBYTE
    """Bytes of all bodies from the first byte to the answer; with the strings made of them five times as much."""

    @property
    def questions(self) -> int:
        """Questions in one request: each has a window at least."""
        return self.tokens // self.window_tokens

    @property
    def characters(self) -> int:
        """Of all questions and contexts of a request: English has 4 to 5 to a token, of which windows repeat a third.

        Texts of that length take 0.9 s to tokenise at worst.
        """
        return 4 * self.tokens

    @property
    def records(self) -> int:
        """Records in one body: each costs a window at least, and is counted before any is decoded."""
        return self.body_tokens // self.window_tokens

    @property
    def record_characters(self) -> int:
        """Of one record as it is sent, a line or a row: it is not decoded if it has more. Decoded JSON takes up to 30
        bytes for each.
        """
        return 16 * self.characters

    @property
    def body_characters(self) -> int:
        """Of the questions and contexts of all records of a body: they may all be refused once they are tokenised."""
        return 4 * self.body_tokens

    @property
    def answers(self) -> int:
        """Answers that all records of a body may ask for, `top_k` for each window: each takes up to 800 bytes, with the
        spans that compete to be one and its part of the response.
        """
        return 4 * self.tokens

    @property
    def body_answer_characters(self) -> int:
        """Of the texts of all answers to a body, and as many again of its errors. A best answer to each record fits,
        for it is a part of the record's context.
        """
        return max(self.answer_characters, 2 * self.body_characters)

    @property
    def body(self) -> int:
        """Bytes of one body: a character takes at most 12, an escaped pair of surrogates, and JSON stands around it."""
        return min(self.payload, self.body_of_tokens)

    @property
    def body_of_tokens(self) -> int:
        """Bytes of one body, were they held to nothing but its tokens."""
        return 16 * 4 * self.body_tokens

    @property
    def held_bodies(self) -> int:
        """`bodies`, and room for two of the largest."""
        return max(self.bodies, 2 * self.body)

    @property
    def unread_bodies(self) -> int:
        """Bytes of bodies that wait for the one thread that reads and tokenises: less than a minute's work for it."""
        return 4 * self.body

    @property
    def waiting_tokens(self) -> int:
        """Tokens that wait for the model, where it is fast: windows take 40 bytes for each."""
        return 64 * self.tokens

    @property
    def body_tokens(self) -> int:
        """Tokens that all records of one body may put through the model. A batch transform fills a body of 6 MB with
        thousands of records, and for it the time limit is the one that counts.
        """
        return self.waiting_tokens if self.batch else self.tokens

    @property
    def connections(self) -> int:
        """Connections at one time; other descriptors are for files, and for a burst accepted before any closes."""
        return max(16, min(4096, self.open_files - 256))

    @property
    def requests(self) -> int:
        """Requests that wait for an answer, half of the connections: for /ping there is always one."""
        return self.connections // 2

    def check_records(self, count: int) -> None:
        """Pass if a body may have so many records; BodyTooLargeError (413) otherwise."""
        if count > self.records:
            raise self.body_has_too_many("records", self.records)

    def check_texts(self, texts: Sequence[tuple[str, str]]) -> int:
        """How many characters these questions and contexts have, if so many may be tokenised; ServeError (413)
        otherwise.
        """
        if len(texts) > self.questions:
            raise ServeError(
                Kind.TOO_LARGE,
                f"the request has {len(texts)} questions, over the limit of {self.questions}: send fewer at "
                f"once, or raise {TOKENS_VARIABLE}",
            )
        characters = sum(len(question) + len(context) for question, context in texts)
        if characters > self.characters:
            raise ServeError(
                Kind.TOO_LARGE,
                f"questions and contexts have {characters} characters in all, over the limit of {self.characters}: "
                f"send fewer or shorter ones at once, or raise {TOKENS_VARIABLE}",
            )
        return characters

    def check_answers(self, windows: int, top_k: int) -> None:
        """Pass if that many windows may give `top_k` answers each; ServeError (413) otherwise."""
        answers = windows * top_k
        if answers > self.answers:
            raise ServeError(
                Kind.TOO_LARGE,
                f"`top_k` is {top_k} and the request makes {windows} windows, which gives {answers} answers, over the "
                f"limit of {self.answers}: lower `top_k`, send less at once, or raise {TOKENS_VARIABLE}",
            )

    def too_many_windows(self, windows: int, tokens: int) -> ServeError:
        """The refusal (413) of a request with that many windows, or more."""
        return ServeError(
            Kind.TOO_LARGE,
            f"the request makes {windows} windows with {tokens} tokens in all, over the limit of {self.tokens} tokens: "
            f"send fewer questions, a shorter context or a smaller doc_stride, or raise {TOKENS_VARIABLE}",
        )

    def record_too_long(self, characters: int) -> ServeError:
        """The refusal (413) of a record that is not decoded."""
        return ServeError(
            Kind.TOO_LARGE,
            f"the record has {characters} characters, over the limit of {self.record_characters}: send a shorter "
            f"context, or raise {TOKENS_VARIABLE}",
        )

    def body_has_too_many(self, what: str, most: int) -> "BodyTooLargeError":
        """The refusal (413) of a body with more than `most` of `what`, such as records."""
        advice = "lower the job's MaxPayloadInMB" if self.batch else "send fewer records at once"
        return BodyTooLargeError(
            Kind.TOO_LARGE, f"the body has more than {most} {what}: {advice}, or raise {TOKENS_VARIABLE}"
        )


_AT_ONCE = 1024 * MEBIBYTE
_DRAINED = 1024 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The limits of one service, in bytes."""

    most: int
    """Of one body."""
    at_once: int
    """Of all bodies from the first byte to the answer. admission.py limits those of the whole server by its memory."""
    drained: int
    """Of a refused body: so much is read and thrown away, so that a client that still sends can read the refusal."""
    in_transform: int
    """Of one body in a batch transform, as /execution-parameters says it."""
    advice: str
    """What to do about a body that is too large, with the variable that raises `most`."""

    def too_large(self, size: str, *, close: bool = False) -> ServeError:
        """The refusal (413) of a body of that size."""
        sentence = f"the body has {size} bytes, over the limit of {self.most}: {self.advice}"
        return ServeError(Kind.TOO_LARGE, sentence, close=close)


LOAD_REQUEST = BodyLimits(MEBIBYTE, MEBIBYTE, 2 * MEBIBYTE, 0, "send a model's name and folder alone")
"""Of POST /models."""


def for_questions(limits: RequestLimits) -> BodyLimits:
    """Of our own model, which takes a limited number of tokens from each body."""
    variable = PAYLOAD_VARIABLE if limits.body == limits.payload else TOKENS_VARIABLE
    advice = f"send fewer questions at once, or raise {variable}"
    in_transform = replace(limits, batch=True).body_of_tokens
    return BodyLimits(limits.body, limits.held_bodies, _drained(limits), in_transform, advice)


def for_handler(limits: RequestLimits) -> BodyLimits:
    """Of a model's own code, whose bodies may hold anything: as many bytes as SageMaker lets through, 25 MB to an
    endpoint and up to 100 MB in a batch transform, which sets SAGEMAKER_MAX_PAYLOAD_IN_MB.
    """
    at_once = max(_AT_ONCE, 2 * limits.payload)
    advice = f"send less at once, or raise {PAYLOAD_VARIABLE}"
    return BodyLimits(limits.payload, at_once, _drained(limits), limits.payload, advice)


def _drained(limits: RequestLimits) -> int:
    return limits.payload + min(limits.payload, _DRAINED)
