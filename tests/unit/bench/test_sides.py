"""Variants and cores on the command line, and the description of the CPU."""

import os
from pathlib import Path

import pytest

from bench import machine, program
from bench.serving import sides
from berth.common.errors import UserError

OURS = sides.Side("ours", "berth-serve:cpu", Path("model"), {"A": "1"})

CPUINFO = """processor\t: 0
cpu family\t: 6
model\t\t: 207
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu avx2 avx512f avx512_vnni avx512_vbmi
"""


def test_parse_environment() -> None:
    assert sides.parse_environment(["A=1", "B=x=y", "C="]) == {"A": "1", "B": "x=y", "C": ""}
    with pytest.raises(UserError, match="'A' is not a variable: write NAME=VALUE"):
        sides.parse_environment(["A"])


def test_parse_variant() -> None:
    assert sides.parse_variant(["plain"], OURS) == sides.Side("plain", "berth-serve:cpu", Path("model"), {})
    words = ["int8", "model=other.tar.gz", "image=mine:1", "BERTH_X=1", "model_x=2"]
    expected = sides.Side("int8", "mine:1", Path("other.tar.gz"), {"BERTH_X": "1", "model_x": "2"})
    assert sides.parse_variant(words, OURS) == expected


@pytest.mark.parametrize("name", ["peer", "ours", "", "-x", "a b", "a=b", "a|b"])
def test_variant_name_must_be_valid_and_unused(name: str) -> None:
    with pytest.raises(UserError, match="can't name a variant"):
        sides.parse_variant([name], OURS)


def test_describe_cpu_has_name_and_fast_instructions() -> None:
    expected = "Intel(R) Xeon(R) Processor (family/model 6/207; avx2, avx512f, avx512_vnni)"
    assert machine.describe_cpu(CPUINFO) == expected
    assert machine.describe_cpu("") == "CPU (family/model unknown; no AVX2)"


def test_parse_cores_accepts_only_cores_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    assert machine.parse_cores(None) == [0, 1, 2, 5]
    assert machine.parse_cores("5,0-2") == [0, 1, 2, 5]
    assert machine.parse_cores("1") == [1]
    with pytest.raises(UserError, match="this process may use 0,1,2,5"):
        machine.parse_cores("0-3")
    for wrong in ("", "a", "0,", "2-", "-1", "3-1"):
        with pytest.raises(UserError, match="--cores is"):
            machine.parse_cores(wrong)


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5"])
def test_positive_accepts_only_whole_numbers_above_0(text: str) -> None:
    with pytest.raises(Exception, match="is not a whole number above 0"):
        program.positive(text)
    assert program.positive("3") == 3
