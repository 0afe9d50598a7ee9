"""Scripts like transformers' examples in two ranks without a network; bench/user_scripts.py runs the real examples."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.scripts.data import question_rows, write_rows

pytestmark = pytest.mark.transformers5

SCRIPTS = Path(__file__).parent / "scripts"
# Both run in the same ranks, because importing their packages takes most of the time.
BOTH = """
import sys
import glue_like, qa_like
for program, kind in ((qa_like, "json"), (glue_like, "csv")):
    data = "/opt/ml/input/data"
    sys.argv = [program.__file__, "--model_name_or_path", f"{data}/model", "--output_dir", f"/opt/ml/model/{kind}",
        "--train_file", f"{data}/{kind}/rows.{kind}", "--validation_file", f"{data}/{kind}/rows.{kind}",
        "--do_train", "--do_eval", "--max_steps", "2", "--per_device_train_batch_size", "2",
        "--save_strategy", "no", "--disable_tqdm", "True"]
    program.main()
"""


def test_scripts_like_the_examples_train_in_two_ranks(
    user_job: Callable[..., Any], tiny_model: Path, tmp_path: Path
) -> None:
    channels = {kind: tmp_path / kind / f"rows.{kind}" for kind in ("json", "csv")}
    for path in channels.values():
        write_rows(path, question_rows("heldout", 8))
    ran = user_job(
        {"both.py": BOTH, **{name: (SCRIPTS / name).read_text() for name in ("qa_like.py", "glue_like.py")}},
        "both.py",
        channels=channels,
        model=tiny_model,
        environment={"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2", "HF_HUB_OFFLINE": "1"},
    )
    assert ran.outcome.exit_code == 0, ran.log
    for name, figures in (("qa", ("eval_exact_match", "eval_f1")), ("glue", ("eval_accuracy",))):
        lines = sorted(line for line in ran.lines_of("algo-1") if line.startswith(f"{name}: "))
        assert [re.match(rf"{name}: (rank \d of \d)", line)[1] for line in lines] == ["rank 0 of 2", "rank 1 of 2"]
        assert all(f"'{figure}'" in line for line in lines for figure in figures)
