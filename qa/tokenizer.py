"""The tokenizer of a model as windows need it: pairs in, encodings out, by the tokenizers library alone.

A server that has it in one file starts without transformers, whose import takes seconds and a hundred megabytes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tokenizers import Encoding, Tokenizer


class SlowTokenizerError(ValueError):
    """The tokenizer is not one of the tokenizers library, so it has no offsets; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class PairTokenizer:
    """Encodes pairs of texts whole: no truncation, no padding."""

    library: Tokenizer
    token_types: bool
    """Whether the model takes token_type_ids."""

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """A copy of what a fast tokenizer of transformers holds; SlowTokenizerError for another."""
        if not getattr(tokenizer, "is_fast", False):
            raise SlowTokenizerError(
                "This model has a slow tokenizer only, without offsets: use a model with a tokenizer.json."
            )
        return cls._plain(
            tokenizer.backend_tokenizer.to_str(), token_types="token_type_ids" in tokenizer.model_input_names
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote; ValueError for anything else."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ValueError(f"it is no tokenizer ({error})") from error
        if not isinstance(fields, dict) or not isinstance(fields.get("token_types"), bool) or "library" not in fields:
            raise ValueError("it is no tokenizer that the kit wrote")
        return cls._plain(json.dumps(fields["library"]), token_types=fields["token_types"])

    @classmethod
    def _plain(cls, library: str, *, token_types: bool) -> Self:
        try:
            plain = Tokenizer.from_str(library)
        except Exception as error:  # the library raises no other type
            raise ValueError(f"it is no tokenizer ({error})") from error
        # A tokenizer.json may bring both with it.
        plain.no_truncation()
        plain.no_padding()
        return cls(plain, token_types)

    def to_json(self) -> str:
        """The whole tokenizer as text."""
        return json.dumps({"token_types": self.token_types, "library": json.loads(self.library.to_str())})

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[Encoding]:
        """An encoding for each pair of valid Unicode texts."""
        return list(self.library.encode_batch(list(pairs)))

    def sharing(self) -> "PairTokenizer":
        """A tokenizer of the same encodings for data of which many pairs share a text; itself where it knows none."""
        fields = json.loads(self.library.to_str())
        if (fields["post_processor"] or {}).get("type") not in SharingTokenizer.PROCESSORS:
            return self
        parts = Tokenizer.from_str(json.dumps(fields | {"post_processor": None}))
        return SharingTokenizer(self.library, self.token_types, parts)


@dataclass(frozen=True, slots=True)
class SharingTokenizer(PairTokenizer):
    """Encodes each text once, however many pairs it is in: a context of SQuAD has five questions.

    As the library itself does for a pair, it encodes both texts by `parts`, the tokenizer without its post-processor,
    and puts them together by that.
    """

    PROCESSORS: ClassVar = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
    """Those that set the token types of both texts, whatever they were before."""
    parts: Tokenizer

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[Encoding]:
        """An encoding for each pair of valid Unicode texts."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        encoded = dict(zip(texts, self.parts.encode_batch(texts), strict=True))
        return [self.library.post_process(encoded[first], encoded[second]) for first, second in pairs]
