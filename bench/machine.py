"""This machine: its CPU, the cores that a measurement uses, and its fastest product of matrices in fp32."""

import os
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from berth.common.errors import UserError

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")
"""Of a CPU, those that say how fast it multiplies numbers of 4, 2 and 1 bytes."""
SIZES = (512, 1024, 2048, 3072)
_SECONDS_A_SIZE = 1.0
Result = TypeVar("Result")
Given = ParamSpec("Given")


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """size: of the square matrices whose product was the fastest; flops: its operations per second."""

    size: int
    flops: float


def describe_cpu(cpuinfo: str) -> str:
    """The CPU's name and its FLAGS, out of the text of /proc/cpuinfo."""
    name = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^flags\s*: (.*)$", cpuinfo, re.MULTILINE)
    family = [re.search(rf"^{field}\s*: (\d+)$", cpuinfo, re.MULTILINE) for field in ("cpu family", "model")]
    numbers = "/".join(found[1] for found in family if found)
    has = [flag for flag in FLAGS if flags and flag in flags[1].split()]
    return f"{name[1].strip() if name else 'CPU'} (family/model {numbers or 'unknown'}; {', '.join(has) or 'no AVX2'})"


def this_cpu() -> str:
    return describe_cpu(Path("/proc/cpuinfo").read_text())


def cores_of(text: str | None) -> list[int]:
    """The cores that `text` names, as taskset and Docker have it (`0-1,4`); those of this process without a text.

    UserError for what is no such list, or names a core that this process may not use.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if text is None:
        return allowed
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise UserError(f"--cores is {text!r}: write numbers, such as 0,1 or 0-3.")
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    if not found or not found <= set(allowed):
        raise UserError(f"--cores is {text!r}: this process may use {as_text(allowed)}.")
    return sorted(found)


def as_text(cores: Iterable[int]) -> str:
    return ",".join(map(str, cores))


def matrix_product(cores: int) -> MatrixProduct:
    """The fastest product of two square fp32 matrices, of SIZES, with a thread for each core; wants torch."""
    import torch

    torch.set_num_threads(cores)
    best = MatrixProduct(0, 0.0)
    for size in SIZES:
        one, other = torch.rand(size, size), torch.rand(size, size)
        into = torch.empty(size, size)
        until = time.perf_counter() + _SECONDS_A_SIZE
        while (began := time.perf_counter()) < until:
            torch.mm(one, other, out=into)
            flops = 2 * size**3 / (time.perf_counter() - began)
            best = max(best, MatrixProduct(size, flops), key=lambda each: each.flops)
    return best


def apart(work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
    """What `work` returns, from a process of its own: torch's threads and memory are not the client's.

    UserError where torch or transformers is missing.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(work, *given, **named).result()
        except ImportError as error:
            raise UserError(f"{error.name} is not installed here: run `make setup-tests` first.") from None
