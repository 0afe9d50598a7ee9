"""A model's tokenizer for pairs of texts, based only on the tokenizers library.

A server that loads it from one file need not import transformers, which takes seconds and a hundred megabytes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tokenizers import Encoding, Tokenizer


class SlowTokenizerError(ValueError):
    """The tokenizer does not use the tokenizers library, so it has no offsets; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class PairTokenizer:
    """Encodes pairs of texts without truncation and padding; special tokens that are spelt in a text are plain text."""

    library: Tokenizer
    token_types: bool
    """Whether the model takes token_type_ids."""

    @classmethod
    def of(cls, tokenizer: Any, *, token_types: bool) -> Self:
        """A copy of a fast tokenizer of transformers; SlowTokenizerError for a slow one."""
        if not getattr(tokenizer, "is_fast", False):
            raise SlowTokenizerError(
                "This model has a slow tokenizer only, without offsets: use a model with a tokenizer.json."
            )
        fields = json.loads(tokenizer.backend_tokenizer.to_str())
        special_tokens = set(tokenizer.all_special_tokens)
        for token in fields["added_tokens"]:
            token["special"] = token["special"] or token["content"] in special_tokens
        return cls(_library(fields), token_types)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; ValueError for any other text."""
        try:
            fields = json.loads(text)
            return cls(_library(fields["library"]), bool(fields["token_types"]))
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"it is not a tokenizer ({error})") from error

    def to_json(self) -> str:
        """The tokenizer as text."""
        return json.dumps({"token_types": self.token_types, "library": json.loads(self.library.to_str())})

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[Encoding]:
        """One encoding per pair of valid Unicode texts."""
        return list(self.library.encode_batch(list(pairs)))

    def sharing(self) -> "PairTokenizer":
        """A tokenizer with the same encodings, faster if pairs share texts; itself if the post-processor is unknown."""
        fields = json.loads(self.library.to_str())
        if (fields["post_processor"] or {}).get("type") not in SharingTokenizer.PROCESSORS:
            return self
        return SharingTokenizer(self.library, self.token_types, _library(fields | {"post_processor": None}))


@dataclass(frozen=True, slots=True)
class SharingTokenizer(PairTokenizer):
    """Encodes each text once, even if it is in many pairs: a context of SQuAD has five questions.

    Like the library itself for a pair, it encodes both texts with `parts`, the tokenizer without its post-processor,
    and combines them with the post-processor.
    """

    PROCESSORS: ClassVar = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
    """Post-processors that set the token types of both texts, whatever they were before."""
    parts: Tokenizer

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[Encoding]:
        """One encoding per pair of valid Unicode texts."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        encoded = dict(zip(texts, self.parts.encode_batch(texts), strict=True))
        return [self.library.post_process(encoded[first], encoded[second]) for first, second in pairs]


def _library(fields: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a tokenizer.json for users' texts: without truncation and padding, and with special tokens that
    are spelt in a text, such as `</s>`, as plain text.
    """
    library = Tokenizer.from_str(json.dumps(_without_spelt_tokens(fields)))
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True  # it means "encode them as plain text"; tokenizer.json has no such setting
    return library


def _without_spelt_tokens(fields: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer and ids, but with a space before each special token in the vocabulary.

    `encode_special_tokens` is not enough: models that look up whole pieces (Unigram, WordPiece, WordLevel) still find
    `</s>` in their vocabulary. No piece of a text has a space, because spaces are replaced or split at before. BPE
    needs no change, because it finds only what its merges produce.
    """
    model = fields["model"]
    if "merges" in model:
        return fields
    special = {token["content"] for token in fields["added_tokens"] if token["special"]}

    def hidden(piece: str) -> str:
        return f" {piece}" if piece in special and not piece.startswith(" ") else piece

    vocabulary = model["vocab"]
    model = model | {
        "vocab": {hidden(piece): number for piece, number in vocabulary.items()}
        if isinstance(vocabulary, dict)
        else [[hidden(piece), score] for piece, score in vocabulary]
    }
    if "unk_token" in model:
        model["unk_token"] = hidden(model["unk_token"])
    added = [token | {"content": hidden(token["content"])} for token in fields["added_tokens"]]
    return fields | {"model": model, "added_tokens": added}
