"""The user's machine and the image report the same reasons why a model can't be served."""

import json
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.contract.served_model import serving_faults
from berth.local.archive import check_servable
from berth.runtime.engines.model_folder import ModelFilesError, find
from tests.files import write_files

FILES = {"model.safetensors": "x", "tokenizer.json": "{}"}
QA = {"model_type": "bert", "architectures": ["BertForQuestionAnswering"]}
OTHER_HEAD = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
KINDS: dict[str, tuple[dict[str, str], str]] = {
    "another head": ({**FILES, "config.json": json.dumps(OTHER_HEAD)}, "this is a BertForSequenceClassification"),
    "another head one level down": (
        {f"a/{name}": text for name, text in {**FILES, "config.json": json.dumps(OTHER_HEAD)}.items()},
        "/a: this is a BertForSequenceClassification",
    ),
    "an embedder": (
        {**FILES, "modules.json": "[]", "config.json": json.dumps({**QA, "architectures": ["BertModel"]})},
        "this is a BertModel of sentence-transformers",
    ),
    "an adapter next to a model": (
        {**FILES, "config.json": json.dumps(QA), "adapter_config.json": "{}"},
        "holds a model and a PEFT adapter, which would not be used",
    ),
    "an adapter": ({"adapter_config.json": "{}"}, "holds a PEFT adapter"),
    "XLNet": ({**FILES, "config.json": json.dumps({"model_type": "xlnet"})}, "a model of type xlnet"),
    "no JSON": ({**FILES, "config.json": "oops"}, "config.json can't be read"),
    "a list": ({**FILES, "config.json": "[]"}, "config.json names no `model_type`"),
    "nothing": ({}, "holds no model"),
    "several faults": ({"config.json": "{}"}, "names no `model_type`"),
}


@pytest.mark.parametrize(("files", "fact"), KINDS.values(), ids=KINDS.keys())
def test_user_machine_and_image_report_same_faults(files: dict[str, str], fact: str, tmp_path: Path) -> None:
    write_files(tmp_path, files)
    faults = serving_faults(tmp_path, tmp_path)
    assert fact in faults[0]
    with pytest.raises(ModelFilesError) as image_error:
        find(tmp_path)
    with pytest.raises(UserError) as host_error:
        check_servable(tmp_path, tmp_path)
    assert str(host_error.value) == f"{image_error.value}." == f"{'; '.join(faults)}."


@pytest.mark.parametrize("other_files", [{}, {"modules.json": "[]"}])
def test_question_answering_model_is_accepted(other_files: dict[str, str], tmp_path: Path) -> None:
    write_files(tmp_path, {**FILES, **other_files, "config.json": json.dumps(QA)})
    assert serving_faults(tmp_path, "mine") == []
    check_servable(tmp_path, tmp_path)
    assert find(tmp_path).folder == tmp_path
