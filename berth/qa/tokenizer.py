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
    """Encodes pairs of texts whole: no truncation, no padding, and no token that a text could spell."""

    library: Tokenizer
    token_types: bool
    """Whether the model takes token_type_ids."""

    @classmethod
    def of(cls, tokenizer: Any, *, token_types: bool) -> Self:
        """A copy of what a fast tokenizer of transformers holds; SlowTokenizerError for another."""
        if not getattr(tokenizer, "is_fast", False):
            raise SlowTokenizerError(
                "This model has a slow tokenizer only, without offsets: use a model with a tokenizer.json."
            )
        fields = json.loads(tokenizer.backend_tokenizer.to_str())
        named = set(tokenizer.all_special_tokens)
        for token in fields["added_tokens"]:
            token["special"] = token["special"] or token["content"] in named
        return cls(_library(fields), token_types)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote; ValueError for anything else."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ValueError(f"it is no tokenizer ({error})") from error
        if not isinstance(fields, dict) or not isinstance(fields.get("token_types"), bool) or "library" not in fields:
            raise ValueError("it is no tokenizer that the kit wrote")
        try:
            return cls(_library(fields["library"]), fields["token_types"])
        except Exception as error:  # the library raises no other type
            raise ValueError(f"it is no tokenizer ({error})") from error

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
        return SharingTokenizer(self.library, self.token_types, _library(fields | {"post_processor": None}))


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


def _library(fields: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a tokenizer.json for texts of users: it neither truncates nor pads, and a special token that is
    spelt in a text, such as `</s>`, is text.
    """
    library = Tokenizer.from_str(json.dumps(_without_spelt_tokens(fields)))
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True  # the name means: as text. No tokenizer.json can say it
    return library


def _without_spelt_tokens(fields: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer, but special tokens begin with a space in its vocabulary; ids stay the same.

    `encode_special_tokens` is not enough: models that look for whole pieces (Unigram, WordPiece, WordLevel) find
    `</s>` in their vocabulary all the same. No piece of a text has a space, which is replaced or cut at before. BPE
    finds only what its merges make.
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
