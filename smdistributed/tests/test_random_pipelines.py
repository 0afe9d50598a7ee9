"""Random module trees, partitions and schedules against one process, in one launch with 2 ranks.

`python -m bench.model_parallel_equality` runs more of them.
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
def test_random_pipelines_equal_one_process(tmp_path: Path) -> None:
    cases, problem = rank_jobs.run(BODY, 2, tmp_path, imports=["pipeline_models"])[0]
    assert not problem, problem
    assert len(cases) >= COUNT
