"""The rule of docs/size-it.md: one for the page, the measurement and the server that loads many models."""

import re
from pathlib import Path

import pytest
from botocore.loaders import create_loader

from bench.sizes import FRONT_MB, RULE, SHAPES, Case
from berth.images.pins import pins
from berth.serve.models.folder import needed_memory

PAGE = (pins.ROOT / "docs/size-it.md").read_text("utf-8")
ROW = re.compile(
    r"^\| (\S+) \| (\d+) \| ([\w, ]+) \| (\d+) (workers?|models) \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE
)


def test_the_page_has_the_rule() -> None:
    assert f"{FRONT_MB} MB + workers × " in PAGE
    rule = re.findall(r"^\| ([\w, ]+) \| (\d+) MB \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert {name: (int(base), float(copies)) for name, base, copies in rule} == RULE


def test_the_measured_rows_are_within_the_rule() -> None:
    found = ROW.findall(PAGE)
    assert {"MiniLM-L6", "bert-base"} <= {row[0] for row in found} <= set(SHAPES)
    assert {row[2] for row in found} == set(RULE)
    for model, weights, name, workers, of_what, rule, memory in found:
        case = Case(model, name.partition(",")[0], int(workers), of_what == "models")
        assert case.rule == name
        assert case.needed_mb(int(weights) * 1_000_000) == pytest.approx(int(rule.replace(",", "")), rel=0.01)
        assert int(memory.replace(",", "")) <= int(rule.replace(",", "")), case


@pytest.mark.parametrize("megabytes", [91, 438, 1340])
def test_a_multi_model_endpoint_expects_as_much(megabytes: int, tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(megabytes * 1_000_000)
    expected = Case("any", multi=True).needed_mb(megabytes * 1_000_000) - FRONT_MB
    assert needed_memory(tmp_path) / 1e6 == pytest.approx(expected, rel=0.02)


def test_every_instance_is_one_of_an_endpoints() -> None:
    shape = create_loader().load_service_model("sagemaker", "service-2")["shapes"]["ProductionVariantInstanceType"]
    named = set(re.findall(r"`(ml\.[\w.]+)`", PAGE))
    assert len(named) > 5
    assert named <= set(shape["enum"])
