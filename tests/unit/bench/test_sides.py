"""What the command line of bench/serve.py compares, and on which cores."""

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


def test_variables_have_a_name_and_a_value() -> None:
    assert sides.parse_environment(["A=1", "B=x=y", "C="]) == {"A": "1", "B": "x=y", "C": ""}
    with pytest.raises(UserError, match="'A' is no variable: write NAME=VALUE"):
        sides.parse_environment(["A"])


def test_a_variant_says_what_differs() -> None:
    assert sides.parse_variant(["plain"], OURS) == sides.Side("plain", "berth-serve:cpu", Path("model"), {})
    given = ["int8", "model=other.tar.gz", "image=mine:1", "BERTH_X=1", "model_x=2"]
    expected = sides.Side("int8", "mine:1", Path("other.tar.gz"), {"BERTH_X": "1", "model_x": "2"})
    assert sides.parse_variant(given, OURS) == expected


@pytest.mark.parametrize("name", ["peer", "ours", "", "-x", "a b", "a=b", "a|b"])
def test_a_variants_name_is_a_column_of_its_own(name: str) -> None:
    with pytest.raises(UserError, match="can't name a variant"):
        sides.parse_variant([name], OURS)


def test_a_cpu_is_its_name_and_what_multiplies_fast() -> None:
    expected = "Intel(R) Xeon(R) Processor (family/model 6/207; avx2, avx512f, avx512_vnni)"
    assert machine.describe_cpu(CPUINFO) == expected
    assert machine.describe_cpu("") == "CPU (family/model unknown; no AVX2)"


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    assert machine.cores_of(None) == [0, 1, 2, 5]
    assert machine.cores_of("5,0-2") == [0, 1, 2, 5]
    assert machine.cores_of("1") == [1]
    with pytest.raises(UserError, match="this process may use 0,1,2,5"):
        machine.cores_of("0-3")
    for wrong in ("", "a", "0,", "2-", "-1", "3-1"):
        with pytest.raises(UserError, match="--cores is"):
            machine.cores_of(wrong)


def test_a_process_apart_says_what_is_missing() -> None:
    assert machine.apart(max, 3, 4) == 4
    with pytest.raises(UserError, match="berth_absent is not installed here: run `make setup-tests` first"):
        machine.apart(__import__, "berth_absent")


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5"])
def test_rounds_and_requests_are_counted_from_one(text: str) -> None:
    with pytest.raises(Exception, match="is no whole number from 1 on"):
        program.positive(text)
    assert program.positive("3") == 3
