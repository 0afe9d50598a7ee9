"""examples/: the scripts for both libraries learn the same on several ranks as on one."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import rank_jobs
from PIL import Image
from transformers import (
    AutoModelForImageClassification,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from berth.images.pins import pins

pytestmark = pytest.mark.slow
QUESTIONS, TEXT, IMAGES = (
    pins.ROOT / "examples" / name
    for name in ("question_answering_smddp", "text_classification_model_parallel", "image_classification_vit")
)
MODELS = [f"transformers.models.{name}.modeling_{name}" for name in ("bert", "roberta", "vit")]
NAMES = ("ada", "bert", "cleo", "dan")
OWN_QUESTIONS = [
    {"question": "who ?", "context": f"{name} sleeps .", "answer": name, "answer_start": 0} for name in NAMES
]
OWN_PAIRS = [
    {"premise": f"{name} sleeps .", "hypothesis": hypothesis, "label": label}
    for label, hypothesis in enumerate(("one sleeps .", "one dreams .", "all walk ."))
    for name in NAMES
]

# The options that the launchers pass with `--parallel tensor`.
NOTEBOOK = {
    "microbatches": 4,
    "placement_strategy": "cluster",
    "pipeline": "interleaved",
    "partitions": 4,
    "pipeline_parallel_degree": 2,
    "tensor_parallel_degree": 2,
    "optimize": "speed",
    "ddp": True,
}


def trained(script: Path, size: int, folder: Path, *arguments: str, **more: str) -> tuple[list[float], str]:
    """The loss of each epoch and the number of right answers, which only the first rank prints."""
    folder.mkdir(exist_ok=True)
    more["SM_MODEL_DIR"] = str(folder / "model")
    first, *others = rank_jobs.start(script, size, folder, *arguments, imports=MODELS, **more)
    assert others == [""] * (size - 1)
    losses = [float(text) for text in re.findall(r"^epoch \d+: loss ([\d.]+)$", first, re.MULTILINE)]
    (right,) = re.findall(r"^(?:right \w+|exact match): (.*)$", first, re.MULTILINE)
    return losses, right


def model_parallel(partitions: int, **more: Any) -> dict[str, str]:
    """The variables of a job of SDK v2; transformers reads them as well. more: further options of the library."""
    parameters = {"partitions": partitions, "microbatches": 4, "ddp": True, **more}
    return {
        "SM_HP_MP_PARAMETERS": json.dumps(parameters),
        "SM_FRAMEWORK_PARAMS": json.dumps({"sagemaker_mpi_enabled": True}),
    }


@pytest.mark.nightly
def test_questions_on_two_ranks(tmp_path: Path) -> None:
    losses, matches = trained(QUESTIONS / "train.py", 2, tmp_path)
    alone, same = trained(QUESTIONS / "train.py", 1, tmp_path / "alone")
    assert losses == pytest.approx(alone, abs=1e-5)
    assert losses[-1] < 0.01
    assert matches == same == "100 of 100"
    model, tokenizer = (
        kind.from_pretrained(tmp_path / "model") for kind in (AutoModelForQuestionAnswering, AutoTokenizer)
    )
    pair = tokenizer("who carried it ?", "today emil carried the key to the attic .", return_tensors="pt")
    start = int(model(pair["input_ids"], attention_mask=pair["attention_mask"]).start_logits.argmax())
    assert tokenizer.decode(pair["input_ids"][0, start]) == "emil"


def test_own_questions_on_two_ranks(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, OWN_QUESTIONS)))
    losses, matches = trained(
        QUESTIONS / "train.py", 2, tmp_path, "--epochs", "8", "--batch_size", "4", SM_CHANNEL_TRAIN=str(tmp_path)
    )
    assert len(losses) == 8
    assert matches == "4 of 4"


@pytest.mark.nightly
def test_text_classification_with_two_partitions(tmp_path: Path) -> None:
    script = TEXT / "train.py"
    losses, right = trained(script, 2, tmp_path, **model_parallel(2))
    alone, same = trained(script, 1, tmp_path / "alone", **model_parallel(1))
    assert losses == pytest.approx(alone, abs=1e-5)
    assert losses[-1] < 0.1 < 1 < losses[0]
    assert right == same == "100 of 100"
    model, tokenizer = (
        kind.from_pretrained(tmp_path / "model") for kind in (AutoModelForSequenceClassification, AutoTokenizer)
    )
    pair = tokenizer("emil sits in the attic .", "emil likes the attic .", return_tensors="pt")
    found = model(pair["input_ids"], attention_mask=pair["attention_mask"]).logits.argmax()
    assert model.config.id2label[int(found)] == "neutral"


@pytest.mark.nightly
def test_own_texts_on_two_replicas(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, OWN_PAIRS)))
    more = {**model_parallel(1), "SM_CHANNEL_TRAIN": str(tmp_path)}
    losses, right = trained(TEXT / "train.py", 2, tmp_path, "--epochs", "10", "--batch_size", "8", **more)
    assert losses[-1] < losses[0]
    assert right.endswith(" of 12")


@pytest.mark.nightly
def test_images_with_two_partitions_and_on_two_ranks(tmp_path: Path) -> None:
    losses, right = trained(IMAGES / "train.py", 2, tmp_path / "data")
    partitioned, again = trained(IMAGES / "train_smp.py", 2, tmp_path / "model", **model_parallel(2))
    alone, same = trained(IMAGES / "train.py", 1, tmp_path / "alone")
    assert losses == pytest.approx(alone, abs=1e-5)
    assert partitioned == pytest.approx(alone, abs=1e-5)
    assert losses[-1] < 0.1 < 1 < losses[0]
    assert right == again == same == "47 of 48"
    models = [AutoModelForImageClassification.from_pretrained(tmp_path / way / "model") for way in ("data", "model")]
    assert models[0].config.id2label == {0: "checks", 1: "columns", 2: "rows"}
    for name, tensor in models[0].state_dict().items():
        assert (tensor - models[1].state_dict()[name]).abs().max() < 1e-4, name


@pytest.mark.nightly
@pytest.mark.parametrize("size", [4, 8])
def test_images_with_split_layers_in_two_partitions(size: int, tmp_path: Path) -> None:
    """A public notebook's options. Eight ranks are two replicas."""
    losses, right = trained(IMAGES / "train_smp.py", size, tmp_path / "split", **model_parallel(**NOTEBOOK))
    alone, same = trained(IMAGES / "train_smp.py", 1, tmp_path / "alone", **model_parallel(1))
    assert losses == pytest.approx(alone, abs=1e-5)
    assert losses[-1] < 0.1 < 1 < losses[0]
    assert right == same == "47 of 48"
    ours, expected = (
        AutoModelForImageClassification.from_pretrained(tmp_path / way / "model").state_dict()
        for way in ("split", "alone")
    )
    assert ours.keys() == expected.keys()
    assert max(float((ours[name] - tensor).abs().max()) for name, tensor in expected.items()) < 1e-4


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], "train.jsonl is missing: put it into the channel train, or omit the channel."),
        (OWN_PAIRS, "12 pairs are fewer than a batch of 32: reduce --batch_size."),
    ],
)
def test_error_for_wrong_own_pairs(pairs: list[Any], expected: str, tmp_path: Path) -> None:
    if pairs:
        (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    with pytest.raises(AssertionError, match=re.escape(expected)):
        trained(TEXT / "train.py", 1, tmp_path, SM_CHANNEL_TRAIN=str(tmp_path), **model_parallel(1))


@pytest.mark.parametrize(
    ("val", "expected"),
    [
        ("", "train has no images: add a folder per class, or omit the channel."),
        ("cats", "val has the classes ['cats'], train has ['dogs']: use the same classes."),
    ],
)
def test_error_for_wrong_own_images(val: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for channel, name in (("train", "dogs"), ("val", val)) if val else (("train", ""),):
        (tmp_path / channel / name).mkdir(parents=True)
        monkeypatch.setenv(f"SM_CHANNEL_{channel.upper()}", str(tmp_path / channel))
        if name:
            Image.new("RGB", (4, 4)).save(tmp_path / channel / name / "1.jpg")
    with pytest.raises(SystemExit, match=re.escape(expected)):
        runpy.run_path(str(IMAGES / "image_folder.py"))["folders"]()
