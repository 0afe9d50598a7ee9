"""Jobs that request the model parallel library: their options, errors, plan and program arguments."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.contract.launch_options import read_launch_options
from berth.train.planning.job import Job, decoded_hyperparameters, program_arguments
from berth.train.planning.plan import Plan
from tests.unit.train.planning.plans import job, plan_of

FOUR_RANKS = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "4"}


def planned(parameters: Any, transformers: str = "5.23.0", program: str | None = "train.py", **environ: str) -> Plan:
    text = parameters if isinstance(parameters, str) else json.dumps(parameters)
    training_job = job(program=program, **FOUR_RANKS, mp_parameters=text, epochs="1")
    return plan_of(training_job, environ=environ, transformers=transformers)


def test_plan_describes_partitions_and_names_ineffective_options() -> None:
    plan = planned({"partitions": 2, "microbatches": 4, "ddp": True, "memory_weight": 0.5}, "4.26.0")
    assert (plan.kind, plan.world_size) == ("mpirun", 4)
    reasons = [reason for reason in plan.reasons if "model parallel" in reason or "memory_weight" in reason]
    assert reasons == [
        "model parallel: 2 partitions of the model, 2 replicas, 4 microbatches, interleaved, cluster; by the kit's "
        "open implementation, not AWS's library, if AWS's is not in the image",
        "memory_weight changes nothing here: the automatic partition balances parameters",
    ]


def test_plan_counts_tensor_parallel_ranks() -> None:
    """With the options of a public notebook."""
    notebook = {"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2, "partitions": 4, "ddp": True}
    line, *others = [reason for reason in planned(notebook, "4.26.0").reasons if "partitions" in reason]
    assert "2 partitions of the model on 2 tensor parallel ranks each, 1 replica, 1 microbatch" in line
    assert any("partitions is 4, the product of" in each for each in others)


@pytest.mark.parametrize(
    ("name", "transformers", "smdistributed", "warning"),
    [
        ("partitions", "5.23.0", "", "ignores the partitions"),
        ("partitions", "5.23.0", "open", ""),
        ("partitions", "4.26.0", "", ""),
        ("pipeline_parallel_degree", "4.26.0", "", "Trainer reads the option partitions only"),
    ],
)
def test_plan_warns_if_trainer_ignores_partitions(
    name: str, transformers: str, smdistributed: str, warning: str
) -> None:
    plan = planned({name: 2, "ddp": True}, transformers, BERTH_SMDISTRIBUTED=smdistributed)
    warnings = [reason for reason in plan.reasons if "Trainer" in reason]
    assert [warning in reason for reason in warnings] == ([True] if warning else [])


@pytest.mark.parametrize(("transformers", "passed"), [("5.23.0", False), ("4.26.0", True), ("", False)])
def test_mp_parameters_argument_is_passed_only_to_parsers_that_accept_it(transformers: str, passed: bool) -> None:
    words = planned({"partitions": 2}, transformers).program[-4 if passed else -2 :]
    assert words == ("--epochs", "1", *(("--mp_parameters", "partitions=2") if passed else ()))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('{"partitions": 2}', {"partitions": 2}),
        ("{'partitions': 2}", {"partitions": 2}),
        ('"{\\"partitions\\": 2}"', {"partitions": 2}),
        ("{}", None),  # from some notebooks; HfArgumentParser of transformers 5 fails on the option
    ],
)
def test_mp_parameters_are_decoded_in_each_encoding(text: str, options: dict[str, int] | None) -> None:
    job = Job(Path("/opt/ml"), "a", ("a",), None, {"mp_parameters": text}, {}, {}, "train.py")
    assert decoded_hyperparameters(job) == ({"mp_parameters": options} if options else {})
    assert program_arguments(job) == []


def test_mp_parameters_request_mpirun() -> None:
    options = read_launch_options({"mp_parameters": '{"partitions": 1}'}, "train.py", {})
    assert (options.mpi, options.mpi4py, options.problems) == (True, True, ())
    assert options.reasons == ("mpirun: distribution smdistributed modelparallel was asked for",)


REFUSED = {
    "does not divide the ranks": ({"partitions": 3}, "mp_parameters: 3 partitions do not divide the 4 ranks"),
    "unknown option": (
        {"partition": 2},
        "mp_parameters: partition is not an option of smdistributed modelparallel; did you mean",
    ),
    "two names of one option": ({"partitions": 2, "pipeline_parallel_degree": 4}, "two names of one option; keep one."),
    "not together": ({"shard_optimizer_state": 1}, "mp_parameters: shard_optimizer_state is true, which needs ddp"),
    "not an object": ("[1]", "give it as a JSON object of options."),
}


@pytest.mark.parametrize(("parameters", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_mp_parameters_are_refused(parameters: Any, sentence: str) -> None:
    with pytest.raises(JobError) as error:
        planned(parameters)
    assert sentence in str(error.value)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(JobError) as error:
        planned({"partitions": 3, "partitiones": 1}, BERTH_TRACE="never")
    assert "partitiones is not an option" in str(error.value)
    assert "BERTH_TRACE" in str(error.value)
    assert "does not divide" not in str(error.value), "the number of ranks is checked only if there is no other problem"


@pytest.mark.parametrize(
    ("program", "environ", "sentence"),
    [
        (
            "train.py",
            {"BERTH_SMDISTRIBUTED": "off"},
            "BERTH_SMDISTRIBUTED is off, which disables it; remove one of the",
        ),
        (None, {}, "which run_qa, the kit's own program, does not use"),
    ],
    ids=["smdistributed is off", "run_qa"],
)
def test_mp_parameters_without_use_are_refused_unless_empty(
    program: str | None, environ: dict[str, str], sentence: str
) -> None:
    with pytest.raises(JobError, match=sentence):
        planned({"partitions": 2}, program=program, **environ)
    assert planned({}, program=program, **environ).kind == "mpirun"
