"""A script like transformers' example in two ranks without a network; bench/user_scripts.py runs the real examples."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.scripts.data import question_rows, write_rows

pytestmark = pytest.mark.transformers5

SCRIPTS = Path(__file__).parent / "scripts"
ROWS = "/opt/ml/input/data/json/rows.json"


def test_script_like_the_example_trains_in_two_ranks(
    user_job: Callable[..., Any], tiny_model: Path, tmp_path: Path
) -> None:
    write_rows(tmp_path / "json/rows.json", question_rows("heldout", 8))
    ran = user_job(
        {"qa_like.py": (SCRIPTS / "qa_like.py").read_text()},
        "qa_like.py",
        {
            "model_name_or_path": "/opt/ml/input/data/model",
            "output_dir": "/opt/ml/model",
            "train_file": ROWS,
            "validation_file": ROWS,
            "do_train": "True",
            "do_eval": "True",
            "max_steps": "2",
            "per_device_train_batch_size": "2",
            "save_strategy": "no",
            "disable_tqdm": "True",
        },
        channels={"json": tmp_path / "json/rows.json"},
        model=tiny_model,
        environment={"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2", "HF_HUB_OFFLINE": "1"},
    )
    assert ran.outcome.exit_code == 0, ran.log
    lines = sorted(line for line in ran.lines_of("algo-1") if line.startswith("qa: "))
    assert [line.partition(",")[0] for line in lines] == ["qa: rank 0 of 2", "qa: rank 1 of 2"]
    assert all(f"'{figure}'" in line for line in lines for figure in ("eval_exact_match", "eval_f1"))
