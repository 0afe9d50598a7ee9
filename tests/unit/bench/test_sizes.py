"""The memory rule of docs/size-it.md is that of bench/sizes.py and of the server with many models."""

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


def test_page_contains_the_rule() -> None:
    assert f"{FRONT_MB} MB + workers × " in PAGE
    rule = re.findall(r"^\| ([\w, ]+) \| (\d+) MB \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert {name: (int(base), float(copies)) for name, base, copies in rule} == RULE


def test_measured_memory_is_within_the_rule() -> None:
    found = ROW.findall(PAGE)
    assert {"MiniLM-L6", "bert-base"} <= {row[0] for row in found} <= set(SHAPES)
    assert {row[2] for row in found} == set(RULE)
    for model, weights, name, workers, unit, rule, memory in found:
        case = Case(model, name.partition(",")[0], int(workers), unit == "models")
        assert case.rule == name
        assert case.needed_mb(int(weights) * 1_000_000) == pytest.approx(int(rule.replace(",", "")), rel=0.01)
        assert int(memory.replace(",", "")) <= int(rule.replace(",", "")), case


@pytest.mark.parametrize("megabytes", [91, 438, 1340])
def test_multi_model_server_expects_the_same_memory(megabytes: int, tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(megabytes * 1_000_000)
    expected = Case("any", multi=True).needed_mb(megabytes * 1_000_000) - FRONT_MB
    assert needed_memory(tmp_path) / 1e6 == pytest.approx(expected, rel=0.02)


def test_named_instances_exist_for_endpoints() -> None:
    shape = create_loader().load_service_model("sagemaker", "service-2")["shapes"]["ProductionVariantInstanceType"]
    instances = set(re.findall(r"`(ml\.[\w.]+)`", PAGE))
    assert len(instances) > 5
    assert instances <= set(shape["enum"])
