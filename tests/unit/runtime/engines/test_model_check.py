"""The check of model and tokenizer before serving or training, with tiny models of each architecture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModelForQuestionAnswering, PreTrainedTokenizerFast

from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import make_windows
from berth.runtime.engines import convert
from berth.runtime.engines.engine import logits_of_all
from berth.runtime.engines.graph import FOLDER, read_manifest
from berth.runtime.engines.model_check import fault_of, reason_of, takes_token_types, tokenizer_fault
from berth.runtime.engines.model_folder import ModelFilesError, find
from berth.runtime.engines.pytorch import PyTorchEngine, load
from tests.unit.small_models import tiny_tokenizer

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
TYPED = {
    "Albert": SIZES | {"embedding_size": 16},
    "Bert": SIZES,
    "BigBird": SIZES | {"attention_type": "original_full"},
    "ConvBert": SIZES | {"embedding_size": 16},
    "Electra": SIZES | {"embedding_size": 16},
    "Ernie": SIZES,
    "Funnel": {"d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 32, "block_sizes": [1, 1], "num_decoder_layers": 1},
    "MegatronBert": SIZES,
    "MobileBert": SIZES | {"embedding_size": 32, "true_hidden_size": 32, "intra_bottleneck_size": 32},
    "Nystromformer": SIZES | {"segment_means_seq_len": 64, "num_landmarks": 64},
    "RemBert": SIZES | {"input_embedding_size": 16, "output_embedding_size": 16},
    "RoFormer": SIZES | {"embedding_size": 16},
    "Splinter": SIZES | {"question_token_id": 4},
    "SqueezeBert": SIZES | {"embedding_size": 32},
}
UNTYPED = {
    "DistilBert": {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64},
    "MPNet": SIZES,
    "DebertaV2": SIZES,
    "XLMRoberta": SIZES | {"type_vocab_size": 1, "pad_token_id": 0},
}


def make(name: str, sizes: dict[str, Any], **more: Any) -> Any:
    """A model for question answering with random weights, for the tiny tokenizer."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{"vocab_size": len(tiny_tokenizer()), **sizes, **more})
    return AutoModelForQuestionAnswering.from_config(config).eval()


def save(model: Any, folder: Path, tokenizer: Any = None) -> Path:
    model.save_pretrained(folder)
    (tokenizer or tiny_tokenizer()).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes"), TYPED.items(), ids=TYPED.keys())
def test_token_types_are_used_by_models_with_type_embedding(name: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    """The tokenizer's model_input_names do not count: ALBERT's lacks token_type_ids."""
    assert "token_type_ids" not in tiny_tokenizer().model_input_names
    engine = PyTorchEngine(find(save(make(name, sizes), tmp_path)), 1)
    (window,) = make_windows(engine.tokenizer, [("who", "they do")])
    assert window.token_type_ids is not None
    assert window.token_type_ids[window.context_start : window.context_end].all()
    (with_types,) = logits_of_all(engine, [window])
    ids = torch.from_numpy(window.input_ids.astype(np.int64))[None]
    with torch.no_grad():
        without = engine.model(input_ids=ids, attention_mask=torch.ones_like(ids)).start_logits[0].numpy()
    assert np.abs(with_types.start - without).max() > 1e-6


@pytest.mark.parametrize(("name", "sizes"), UNTYPED.items(), ids=UNTYPED.keys())
def test_token_types_are_not_passed_to_other_models(name: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    """The tokenizer's model_input_names do not count: BERT's lists token_type_ids."""
    tokenizer = tiny_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    _, pairs = load(find(save(make(name, sizes), tmp_path, tokenizer)))
    assert not pairs.token_types


def test_graph_has_token_type_input(tmp_path: Path) -> None:
    engine = PyTorchEngine(find(save(make("Albert", TYPED["Albert"]), tmp_path)), 1)
    convert.convert(find(tmp_path), tmp_path / FOLDER)
    assert read_manifest(tmp_path / FOLDER).inputs == ("input_ids", "attention_mask", "token_type_ids")
    written = PairTokenizer.from_json((tmp_path / FOLDER / "tokenizer.json").read_text())
    assert written.token_types is engine.tokenizer.token_types is True


def fault(model: Any, tokenizer: Any = None) -> str:
    pairs = PairTokenizer.of(tokenizer or tiny_tokenizer(), token_types=takes_token_types(model))
    return fault_of(model, pairs)


def test_fault_for_ids_beyond_embedding() -> None:
    larger = tiny_tokenizer()
    larger.add_tokens(["berth"])
    found = fault(make("Bert", SIZES), larger)
    assert f"ids up to {len(larger) - 1} ('berth')" in found
    assert f"{len(tiny_tokenizer())} rows" in found
    assert "pad_token_id in its config is -1" in fault(make("Bert", SIZES, pad_token_id=-1))


def test_all_faults_are_reported_together() -> None:
    larger = tiny_tokenizer()
    larger.add_tokens(["berth"])
    found = fault(make("Bert", SIZES, num_labels=3), larger)
    assert "3 outputs" in found
    assert "ids up to" in found


def test_fault_for_model_without_positions() -> None:
    model = make("Bert", SIZES)
    model.config.max_position_embeddings = -1
    assert "-1 positions" in fault(model)


def test_fault_for_tokenizer_without_separator() -> None:
    """The tokenizers of models that only continue a text, such as GPT-2, insert no separator."""
    library = Tokenizer(models.WordLevel({"[UNK]": 0, "who": 1}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.normalizer = normalizers.Lowercase()
    library.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    assert "no separator" in fault(make("Bert", SIZES), PreTrainedTokenizerFast(tokenizer_object=library))


def test_fault_for_token_types_beyond_embedding() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:2 $A [SEP]", pair="[CLS]:2 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    assert "token types up to 2, but the model has 2" in fault(make("Bert", SIZES), tokenizer)
    assert fault(make("Bert", SIZES, type_vocab_size=3), tokenizer) == ""


def test_fault_for_model_that_raises() -> None:
    xmod = make("Xmod", SIZES | {"pad_token_id": 0, "type_vocab_size": 1})
    assert "fails on a short question (ValueError: Input language unknown" in fault(xmod)


def test_engine_and_conversion_check_the_model(tmp_path: Path) -> None:
    larger = tiny_tokenizer()
    larger.add_tokens(["berth"])
    files = find(save(make("Bert", SIZES), tmp_path, larger))
    with pytest.raises(ModelFilesError, match="ids up to"):
        PyTorchEngine(files, 1)
    with pytest.raises(ModelFilesError, match="ids up to"):
        convert.convert(files, tmp_path / FOLDER)


def test_reason_of_is_one_short_line() -> None:
    assert reason_of(OSError("no file.\nand a traceback")) == "OSError: no file"
    assert len(reason_of(OSError("no file " * 100))) < 250


def test_tokenizer_fault_names_missing_sentencepiece(tmp_path: Path) -> None:
    """The error of transformers asks for tiktoken, which does not help."""
    transformers.AlbertConfig().save_pretrained(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    with pytest.raises(ValueError, match="tiktoken") as error:
        transformers.AutoTokenizer.from_pretrained(tmp_path)
    sentence = tokenizer_fault(error.value)
    assert "sentencepiece" in sentence
    assert "tiktoken" not in sentence
