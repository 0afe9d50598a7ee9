"""How much one request may ask, and how much the server holds at one time.

A model server has no cheap way out of work that it has begun, so everything is counted before it is done: bytes before
JSON, characters before tokens, tokens before the model, spans before their texts. The arithmetic behind the numbers was
measured on one core of a server CPU: a MiniLM of 6 layers does 3,500 to 4,000 tokens a second in float32, a BERT-base
600 to 650; tokenising takes up to 7 µs and 700 bytes for a character that is a token of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Of all answers to a request, which with scores and places make a response of 10 MB at worst."""
    seconds: float = 55.0
    """From a request's header to its answer: SageMaker has given up a real-time one after 60."""
    bodies: int = 64 * MEBIBYTE
    """Bytes of all bodies from the first byte to the answer; with the strings made of them five times as much."""
    header_seconds: float = 20.0
    """From the first byte of a header (of a connection's first: from the connection itself) to its end."""
    body_seconds: float = 30.0
    """From the header to the end of the body."""
    taking_seconds: float = 30.0
    """From an answer's last byte written to the client having taken all of it."""

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
    def wait_seconds(self) -> float:
        """For a worker, as estimated from the last batches: half of the time, so that what is accepted is answered."""
        return self.seconds / 2

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

    def check_texts(self, texts: Sequence[tuple[str, str]]) -> None:
        """Pass if so many questions with their contexts may be tokenised; ServeError (413) otherwise."""
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

    def too_many_windows(self, windows: int, tokens: int) -> ServeError:
        """The refusal (413) of a request with that many windows, or more."""
        return ServeError(
            Kind.TOO_LARGE,
            f"the request makes {windows} windows with {tokens} tokens in all, over the limit of {self.tokens} tokens: "
            f"send fewer questions, a shorter context or a smaller doc_stride, or raise {TOKENS_VARIABLE}",
        )

    def too_many_records(self, fit: int, records: int) -> ServeError:
        """The refusal (413) of a body of which the first `fit` records are as much as the model may have at once."""
        return ServeError(
            Kind.TOO_LARGE,
            f"the first {fit} of {records} records reach the limit of {self.body_tokens} tokens: send fewer at once "
            f"(in a batch transform a smaller MaxPayloadInMB), or raise {TOKENS_VARIABLE}",
        )
