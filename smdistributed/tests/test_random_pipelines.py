"""Module trees, partitions and schedules that hypothesis draws, against one process, in one launch of 2 ranks.

`python -m bench.model_parallel_equality` has more of them.
"""

from pathlib import Path

import pytest
import rank_jobs

pytestmark = pytest.mark.slow
COUNT, STEPS = 15, 4
BODY = f"""
import logging
logging.disable(logging.WARNING)
smp.init({{"partitions": 2}})
import pipeline_trees
result(pipeline_trees.compared({COUNT}, {STEPS}, [2]))
"""


@pytest.mark.nightly
def test_a_random_pipeline_equals_one_process(tmp_path: Path) -> None:
    found, problem = rank_jobs.run(BODY, 2, tmp_path, imports=["pipeline_models"])[0]
    assert not problem, problem
    assert len(found) >= COUNT
