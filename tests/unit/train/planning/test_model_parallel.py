"""A job that asks for the model parallel library: read, refused, planned, and what its program gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.contract.launch_options import read_launch_options
from berth.train.planning.job import Job, decoded_hyperparameters, program_arguments
from berth.train.planning.plan import Plan
from tests.unit.train.planning.plans import job, plan_of

FOUR = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "4"}


def planned(parameters: Any, transformers: str = "5.23.0", program: str | None = "train.py", **environ: str) -> Plan:
    text = parameters if isinstance(parameters, str) else json.dumps(parameters)
    given = job(program=program, **FOUR, mp_parameters=text, epochs="1")
    return plan_of(given, environ=environ, transformers=transformers)


def test_the_plan_says_what_is_done_and_what_changes_nothing() -> None:
    plan = planned({"partitions": 2, "microbatches": 4, "ddp": True, "memory_weight": 0.5}, "4.26.0")
    assert (plan.kind, plan.world_size) == ("mpirun", 4)
    said = [reason for reason in plan.reasons if "model parallel" in reason or "memory_weight" in reason]
    assert said == [
        "model parallel: 2 partitions of the model, 2 replicas, 4 microbatches, interleaved, cluster; by the kit's "
        "open implementation, not AWS's library, if AWS's is not in the image",
        "memory_weight changes nothing here: the automatic partition balances parameters",
    ]


@pytest.mark.parametrize(
    ("transformers", "chosen", "said"), [("5.23.0", "", True), ("5.23.0", "open", False), ("4.26.0", "", False)]
)
def test_a_trainer_that_uses_no_partitions_is_named(transformers: str, chosen: str, said: bool) -> None:
    plan = planned({"partitions": 2, "ddp": True}, transformers, BERTH_SMDISTRIBUTED=chosen)
    assert any("ignores the partitions" in reason for reason in plan.reasons) is said


def test_trainer_takes_the_option_by_its_older_name_only() -> None:
    for name, said in (("pipeline_parallel_degree", True), ("partitions", False)):
        plan = planned({name: 2}, "4.26.0")
        assert any("Trainer reads the option partitions only" in reason for reason in plan.reasons) is said


@pytest.mark.parametrize(("transformers", "taken"), [("5.23.0", False), ("4.26.0", True), ("", False)])
def test_the_argument_is_for_parsers_that_know_it(transformers: str, taken: bool) -> None:
    words = planned({"partitions": 2}, transformers).program[-4 if taken else -2 :]
    assert words == ("--epochs", "1", *(("--mp_parameters", "partitions=2") if taken else ()))


@pytest.mark.parametrize("text", ['{"partitions": 2}', "{'partitions': 2}", '"{\\"partitions\\": 2}"'])
def test_every_clients_text_reaches_the_library_as_json(text: str) -> None:
    job = Job(Path("/opt/ml"), "a", ("a",), None, {"mp_parameters": text}, {}, {}, "train.py")
    assert decoded_hyperparameters(job) == {"mp_parameters": {"partitions": 2}}
    assert program_arguments(job) == []


def test_mpirun_starts_it_where_nothing_else_is_said() -> None:
    options = read_launch_options({"mp_parameters": '{"partitions": 1}'}, "train.py", {})
    assert (options.mpi, options.mpi4py, options.problems) == (True, True, ())
    assert options.reasons == ("mpirun: distribution smdistributed modelparallel was asked for",)


REFUSED = {
    "indivisible": ({"partitions": 3}, "mp_parameters: 3 partitions do not divide the 4 ranks"),
    "unknown": (
        {"partition": 2},
        "mp_parameters: partition is not an option of smdistributed modelparallel; did you mean",
    ),
    "both": ({"partitions": 2, "pipeline_parallel_degree": 4}, "two names of one option; keep one."),
    "not yet": ({"tensor_parallel_degree": 2}, "mp_parameters: tensor_parallel_degree is 2"),
    "no object": ("[1]", "give it as a JSON object of options."),
}


@pytest.mark.parametrize(("parameters", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_before_anything_starts(parameters: Any, sentence: str) -> None:
    with pytest.raises(JobError) as error:
        planned(parameters)
    assert sentence in str(error.value)


def test_off_leaves_out_what_was_asked_for() -> None:
    with pytest.raises(JobError, match="BERTH_SMDISTRIBUTED is off, which disables it; remove one of the two"):
        planned({"partitions": 2}, BERTH_SMDISTRIBUTED="off")
    assert planned({}, BERTH_SMDISTRIBUTED="off").kind == "mpirun"


def test_all_that_is_wrong_with_a_job_is_named_at_once() -> None:
    with pytest.raises(JobError) as error:
        planned({"partitions": 3, "partitiones": 1}, BERTH_TRACE="never")
    assert "partitiones is not an option" in str(error.value)
    assert "BERTH_TRACE" in str(error.value)
    assert "does not divide" not in str(error.value), "the number of ranks counts once the rest is right"


def test_run_qa_does_not_use_it() -> None:
    with pytest.raises(JobError, match="which run_qa, the kit's own program, does not use"):
        planned({"partitions": 2}, program=None)
    assert planned({}, program=None).is_run_qa, "an empty one asks for nothing"
