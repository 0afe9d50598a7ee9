"""What bench/published_scripts.py changes of a script, and how it counts the ranks that trained together."""

from pathlib import Path

import pytest

from bench.published_scripts import SCRIPTS, copy_script, question_rows, ranks_together, write_rows
from berth.common.errors import UserError


def test_nothing_of_a_script_is_changed_but_its_modules_name(tmp_path: Path) -> None:
    script = SCRIPTS[1]
    text = "import transformers_4573\nfrom transformers_4573.utils import x  # tokenizers_4573, transformers_4573x\n"
    (tmp_path / script.folder).mkdir(parents=True)
    (tmp_path / script.folder / "run_glue.py").write_text(text)
    copy_script(script, tmp_path, tmp_path / "code")
    assert (tmp_path / "code/run_glue.py").read_text() == (
        "import transformers\nfrom transformers.utils import x  # tokenizers_4573, transformers_4573x\n"
    )
    with pytest.raises(UserError, match=r"run_qa\.py is not there: let BERTH_PUBLISHED_SCRIPTS name a checkout"):
        copy_script(SCRIPTS[0], tmp_path, tmp_path / "other")


def test_ranks_that_trained_alone_are_not_counted_as_together() -> None:
    line = "  Total train batch size (w. parallel, distributed & accumulation) = {}"
    assert ranks_together([line.format(8), "x"]) == 2
    assert ranks_together([line.format(4), line.format(4)]) == 1
    assert ranks_together(["Training completed."]) == 0


def test_half_of_the_pairs_belong_together(tmp_path: Path) -> None:
    rows = question_rows("heldout", 4)
    write_rows(tmp_path / "train.csv/train.csv", rows)
    lines = (tmp_path / "train.csv/train.csv").read_text().splitlines()
    assert [line.rsplit(",", 1)[1] for line in lines if line.endswith((",0", ",1"))] == ["1", "0", "1", "0"]
