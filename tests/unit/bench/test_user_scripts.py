"""Launches and verdicts of published scripts."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench import user_scripts
from bench.scripts.data import make_data
from bench.scripts.table import TRAIN, Run
from bench.user_scripts import RUNS, JobEnd, find_problems
from berth.contract.launch_options import read_launch_options
from berth.train.startup.rank_events import alone_sentence

LOSS = r"loss: ([0-9.]+|nan)"
RUN = Run(TRAIN, LOSS, ranks=4, losses=(2.3, 0.43))
GOOD = JobEnd(0, "", ["loss: 2.31", "loss: nan", "loss: 0.429"], 1.0)


@pytest.fixture(scope="module")
def made_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_data(folder, "")
    return folder


def test_every_run_has_data_and_launches_its_ranks(made_data: Path) -> None:
    kinds = {path.name for path in made_data.iterdir()} | {"text", "image"}  # these are created in the image
    for run in RUNS:
        assert run.data in kinds
        assert run.replicas * run.parameters.get("partitions", 1) * run.parameters.get("tensor_parallel_degree", 1) == (
            run.ranks
        )
        options = read_launch_options(run.hyperparameters, run.script.name, run.environment)
        assert (options.mpi, options.problems) == (run.way != "one process", ())
        assert (options.smddp, options.model_parallel) == (run.way == "dataparallel", run.parameters)


@pytest.mark.parametrize(
    ("run", "ended", "problems"),
    [
        (RUN, GOOD, []),
        (RUN, replace(GOOD, exit_code=1, reason="x"), ["failed"]),
        (RUN, replace(GOOD, lines=["loss: 2.31", "loss: 0.45"]), ["the loss 0.43 of one process is missing"]),
        (replace(RUN, fails="by zero"), JobEnd(1, "division by zero", [], 1.0), []),
        (replace(RUN, fails="by zero"), JobEnd(1, "x", [], 1.0), ["should fail with another reason"]),
        (replace(RUN, fails="by zero"), GOOD, ["should fail with another reason"]),
    ],
)
def test_problems_of_run(run: Run, ended: JobEnd, problems: list[str]) -> None:
    assert find_problems(run, ended) == problems
    assert ("| as expected |" in user_scripts.make_row(run, ended, 2, problems)) is not bool(problems)


def test_ranks_that_train_alone_are_a_problem() -> None:
    line = "  Total train batch size (w. parallel, distributed & accumulation) = {}"
    run = Run(TRAIN, LOSS, way="mpi", ranks=2, batch=4)
    assert find_problems(run, JobEnd(0, "", [line.format(8), "x"], 1.0)) == []
    for lines in ([line.format(4), line.format(4)], ["Training completed."]):
        (problem,) = find_problems(run, JobEnd(0, "", lines, 1.0))
        assert "of 2 replicas trained together" in problem


def test_weights_may_differ_only_if_expected() -> None:
    joined = "process group of 4"
    sentence = alone_sentence([[joined, f"weights after the first step {digest}"] for digest in "ab"], 4)
    for alone in (True, False):
        run = Run(TRAIN, LOSS, ranks=4, alone=alone)
        assert (find_problems(run, JobEnd(0, "", [f"ends; {sentence}"], 1.0)) == []) is alone
        assert (find_problems(run, JobEnd(0, "", ["ends"], 1.0)) == []) is not alone
