"""examples/question_answering_smddp: the script learns the same on two ranks as on one."""

import json
import re
from pathlib import Path

import pytest
import rank_jobs
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from berth.images.pins import pins

SCRIPT = pins.ROOT / "examples" / "question_answering_smddp" / "train.py"
BERT = "transformers.models.bert.modeling_bert"
OWN = [
    {"question": "who ?", "context": f"{name} sleeps .", "answer": name, "answer_start": 0}
    for name in ("ada", "bert", "cleo", "dan")
]


def trained(size: int, folder: Path, *arguments: str, **more: str) -> tuple[list[float], str]:
    """The loss of each epoch and the number of exact matches, which only the first rank prints."""
    more["SM_MODEL_DIR"] = str(folder / "model")
    first, *others = rank_jobs.start(SCRIPT, size, folder, *arguments, imports=[BERT], **more)
    assert others == [""] * (size - 1)
    losses = [float(text) for text in re.findall(r"^epoch \d+: loss ([\d.]+)$", first, re.MULTILINE)]
    assert "smddp: open implementation, not AWS's library: " in first
    (matches,) = re.findall(r"^exact match: (.*)$", first, re.MULTILINE)
    return losses, matches


@pytest.mark.nightly
def test_two_ranks_learn_the_same_as_one(tmp_path: Path) -> None:
    losses, matches = trained(2, tmp_path)
    (tmp_path / "alone").mkdir()
    alone, same = trained(1, tmp_path / "alone")
    assert losses == pytest.approx(alone, abs=1e-5)
    assert losses[-1] < 0.01
    assert matches == same == "100 of 100"
    model, tokenizer = (
        kind.from_pretrained(tmp_path / "model") for kind in (AutoModelForQuestionAnswering, AutoTokenizer)
    )
    pair = tokenizer("who carried it ?", "today emil carried the key to the attic .", return_tensors="pt")
    start = int(model(pair["input_ids"], attention_mask=pair["attention_mask"]).start_logits.argmax())
    assert tokenizer.decode(pair["input_ids"][0, start]) == "emil"


@pytest.mark.slow
def test_own_questions_on_two_ranks(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, OWN)))
    losses, matches = trained(2, tmp_path, "--epochs", "8", "--batch_size", "4", SM_CHANNEL_TRAIN=str(tmp_path))
    assert len(losses) == 8
    assert matches == "4 of 4"
