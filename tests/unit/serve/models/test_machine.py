"""Some hundred random steps against a real server; `python -m bench.models` runs thousands."""

from pathlib import Path

import pytest

from tests.unit.serve.models.kinds import write_models
from tests.unit.serve.models.machine import Session


@pytest.mark.parametrize("examples", [1, pytest.param(6, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_random_loads_invocations_unloads_and_kills(
    examples: int, tmp_path: Path, tiny_model: Path, other_tiny_model: Path
) -> None:
    write_models(tmp_path, {"tiny0": tiny_model, "tiny1": other_tiny_model})
    session = Session(tmp_path, examples_each=2)
    session.run(examples=examples, steps=40, same=True)
    assert session.steps >= 30 * examples
    assert examples == 1 or session.counts["SIGTERM"]
