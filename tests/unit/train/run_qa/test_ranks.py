"""Tests the messages between ranks, with a real process group of two ranks."""

import json
from pathlib import Path

import pytest

from tests.unit.train.two_ranks import run_ranks

RANK = """
import json, os, pickle, sys
from pathlib import Path
import numpy as np
from berth.runtime.rank import Rank
from berth.train.run_qa import ranks

class Program:
    def __reduce__(self):
        return Path.touch, (Path(os.environ["MARK"]),)

rank = Rank.from_environment(os.environ)
ranks.start_group(rank, "gloo", 60, cuda=False)
results = {"all": ranks.gather([rank.rank, "é", None, 0.1, float("inf")], rank)}
floats = ranks.gather_floats(np.arange(3 * rank.rank, dtype=np.float32) / 3, rank)
results["floats"] = [each.tolist() for each in floats]
results["from leader"] = ranks.from_leader({"f1": 50.5} if rank.leads else None, rank)
try:
    if rank.leads:
        ranks.gather("honest", rank)
    else:
        ranks._gather_bytes(pickle.dumps(Program()), rank)
except ValueError as error:
    results["refused"] = type(error).__name__
print(json.dumps(results), flush=True)
ranks.end_group()
"""


@pytest.mark.slow
def test_gather_sends_json_and_never_unpickles(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    outputs = run_ranks(RANK, tmp_path, hook="", GLOO_SOCKET_IFNAME="lo", MARK=str(mark))
    leader, other = map(json.loads, outputs)
    for results in (leader, other):
        assert results["all"] == [[rank, "é", None, 0.1, float("inf")] for rank in (0, 1)]
        assert results["from leader"] == {"f1": 50.5}
        assert results["floats"][0] == []
        assert [round(each * 3) for each in results["floats"][1]] == [0, 1, 2]
    assert leader["refused"] == "UnicodeDecodeError"
    assert "refused" not in other
    assert not mark.exists()
