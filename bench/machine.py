"""This machine's CPU, and the cores that a measurement uses."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from berth.common.errors import UserError

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")
"""CPU flags that decide how fast it multiplies numbers of 4, 2 and 1 bytes."""


def describe_cpu(cpuinfo: str) -> str:
    """The CPU's name and its FLAGS, read from the text of /proc/cpuinfo."""
    name = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^flags\s*: (.*)$", cpuinfo, re.MULTILINE)
    family = [re.search(rf"^{field}\s*: (\d+)$", cpuinfo, re.MULTILINE) for field in ("cpu family", "model")]
    numbers = "/".join(match[1] for match in family if match)
    has = [flag for flag in FLAGS if flags and flag in flags[1].split()]
    return f"{name[1].strip() if name else 'CPU'} (family/model {numbers or 'unknown'}; {', '.join(has) or 'no AVX2'})"


def this_cpu() -> str:
    return describe_cpu(Path("/proc/cpuinfo").read_text())


def parse_cores(text: str | None) -> list[int]:
    """The cores in a list as taskset and Docker write it (`0-1,4`); None: all cores that this process may use.

    UserError if the text is not such a list, or if this process may not use one of the cores.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if text is None:
        return allowed
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise UserError(f"--cores is {text!r}: write numbers, such as 0,1 or 0-3.")
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    if not cores or not cores <= set(allowed):
        raise UserError(f"--cores is {text!r}: this process may use {as_text(allowed)}.")
    return sorted(cores)


def as_text(cores: Iterable[int]) -> str:
    return ",".join(map(str, cores))
