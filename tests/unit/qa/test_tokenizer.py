"""Tests PairTokenizer: shared texts, its JSON, and special tokens that are spelt in a text."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from berth.qa.squad import read
from berth.qa.tokenizer import PairTokenizer, SharingTokenizer, SlowTokenizerError
from tests.unit.qa.cutting import sentence_piece

SPELT = "one [SEP] two</s>[CLS]<mask> [MASK] three <s> four [PAD]<pad>[UNK]<unk>"
LETTERS = ["\u2581two", *"abcdefghijklmnopqrstuvwxyzCLSEPMAKUDN<>/[]"]


@pytest.mark.slow
def test_sharing_tokenizer_equals_the_library(tokenizer: Any, byte_level: Any, sample: Path) -> None:
    pairs = [(example.question, example.context) for example in read(sample / "squad-heldout.json.xz")[:60]]
    for each in (tokenizer, byte_level):
        plain = PairTokenizer.of(each, token_types=True)
        sharing = plain.sharing()
        assert type(sharing) is SharingTokenizer
        for one, other in zip(sharing.encode(pairs), plain.encode(pairs), strict=True):
            for name in ("ids", "type_ids", "offsets", "word_ids", "sequence_ids"):
                assert getattr(one, name) == getattr(other, name)


def test_tokenizer_with_unknown_post_processor_is_not_shared(byte_level: Any) -> None:
    plain = PairTokenizer.of(byte_level, token_types=False)
    plain.library.post_processor = processors.ByteLevel()
    assert plain.sharing() is plain


def test_slow_tokenizer_is_refused() -> None:
    with pytest.raises(SlowTokenizerError, match="slow tokenizer"):
        PairTokenizer.of(object(), token_types=True)


def test_tokenizer_survives_json(tokenizer: Any, byte_level: Any) -> None:
    pairs = [("What is İt?", "Zürich 🙂 cafe\u0301 [SEP] one\r\ntwo" * 40)]
    for fast in (tokenizer, byte_level):
        fast.backend_tokenizer.enable_truncation(7)
        original = PairTokenizer.of(fast, token_types=fast is tokenizer)
        copy = PairTokenizer.from_json(original.to_json())
        assert copy.token_types is original.token_types is (fast is tokenizer)
        (mine,), (theirs,) = copy.encode(pairs), original.encode(pairs)
        assert mine.ids == theirs.ids == fast(*pairs[0], truncation=False, split_special_tokens=True)["input_ids"]
        assert mine.offsets == theirs.offsets
        assert len(mine.ids) > 100


@pytest.mark.parametrize("text", ["{}", "[]", "x", '{"token_types": true, "library": {}}'])
def test_other_texts_are_refused_as_tokenizer(text: str) -> None:
    with pytest.raises(ValueError, match="it is not a tokenizer"):
        PairTokenizer.from_json(text)


def whole_words() -> Any:
    """A tokenizer that looks up whole words; special tokens are in its vocabulary."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "three", "four"]
    library = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=library, cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", unk_token="[UNK]"
    )


@pytest.mark.slow
def test_spelt_special_tokens_are_plain_text(tokenizer: Any, byte_level: Any) -> None:
    for fast in (tokenizer, byte_level, sentence_piece(LETTERS), whole_words()):
        plain = PairTokenizer.of(fast, token_types=False)
        for each in (plain, plain.sharing(), PairTokenizer.from_json(plain.to_json())):
            (pair,) = each.encode([(SPELT, SPELT)])
            special = set(fast.all_special_ids) - {fast.unk_token_id}
            found = {part for token, part in zip(pair.ids, pair.sequence_ids, strict=True) if token in special}
            assert found == {None}, fast
            covered = {place for span in pair.offsets[pair.sequence_ids.index(1) : -1] for place in range(*span)}
            assert covered >= {place for place, letter in enumerate(SPELT) if letter != " "}


def test_ordinary_text_is_encoded_like_the_library(tokenizer: Any, byte_level: Any, sample: Path) -> None:
    examples = read(sample / "squad-heldout.json.xz")[:40]
    for fast in (tokenizer, byte_level, sentence_piece(LETTERS)):
        fast.backend_tokenizer.no_truncation()
        pairs = [(example.question, example.context) for example in examples]
        theirs = fast([question for question, _ in pairs], [context for _, context in pairs])
        for pair, encoding in zip(
            PairTokenizer.of(fast, token_types=False).encode(pairs), theirs.encodings, strict=True
        ):
            assert pair.ids == encoding.ids
            assert pair.offsets == encoding.offsets
            assert pair.word_ids == encoding.word_ids
