"""SageMaker's data parallel library: importing a test double of it, and the plan for each result."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from berth.images.pins import pins
from berth.train.planning import smddp
from berth.train.planning.hardware import Hardware
from berth.train.planning.job import Job
from berth.train.planning.plan import Plan
from berth.train.planning.smddp import Library
from tests.unit.train.planning import plans
from tests.unit.train.planning.plans import CPU, GPU8

DOUBLE = pins.ROOT / "tests/doubles/smdistributed_double/src"
WITH_DOUBLE = {**os.environ, "PYTHONPATH": str(DOUBLE)}
UNSUPPORTED = "RuntimeError: SMDDP does not support the instance type ml.p5.48xlarge"
# The hyperparameters of an SMDDP estimator.
ESTIMATOR = {
    "sagemaker_distributed_dataparallel_enabled": "true",
    "sagemaker_instance_type": '"ml.p4d.24xlarge"',
    "sagemaker_distributed_dataparallel_custom_mpi_options": '""',
}


def job(hosts: int = 2, program: str | None = None, **hyperparameters: str) -> Job:
    resources = {"current_instance_type": "ml.p4d.24xlarge"}
    return replace(plans.job(hosts, program, **hyperparameters), resources=resources)


def plan_of(training_job: Job, hardware: Hardware, environ: Mapping[str, str], library: Library) -> Plan:
    return plans.plan_of(training_job, hardware, environ, library=library)


@pytest.mark.slow
def test_attempt_imports_the_library() -> None:
    assert smddp.attempt(job(), WITH_DOUBLE).obstacle == ""


def test_attempt_without_the_library(tmp_path: Path) -> None:
    absent = Library("ModuleNotFoundError: No module named 'smdistributed'")
    assert smddp.attempt(job(), os.environ) == absent
    # With berth's start hook, an import by this name would get berth's own implementation.
    site = tmp_path / "sitecustomize.py"
    site.write_text("from berth.train.startup import start_hook; start_hook.start()")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert smddp.attempt(job(), environ) == absent


@pytest.mark.parametrize("chosen", ["open", "off"])
def test_attempt_imports_nothing_if_the_variable_rules_it_out(chosen: str) -> None:
    environ = WITH_DOUBLE | {"BERTH_SMDISTRIBUTED": chosen}
    assert smddp.attempt(job(), environ) == Library(f"BERTH_SMDISTRIBUTED is {chosen}")


@pytest.mark.parametrize(
    ("present", "chosen", "planned", "words"),
    [
        (False, "", None, "gets the kit's open implementation, not AWS's library"),
        (True, "", "open", "gets the kit's open implementation, not AWS's library"),
        (True, "aws", None, "fails as well, because BERTH_SMDISTRIBUTED is aws"),
    ],
)
def test_plan_says_which_library_a_program_imports_instead(
    present: bool, chosen: str, planned: str | None, words: str
) -> None:
    library = Library(UNSUPPORTED, present=present)
    plan = plan_of(job(program="train.py", **ESTIMATOR), CPU, {"BERTH_SMDISTRIBUTED": chosen}, library)
    assert plan.environment.get("BERTH_SMDISTRIBUTED") == planned
    assert plan.backend_reason.endswith(f"can't be used ({UNSUPPORTED}); your program's own import of it {words}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "obstacle"),
    [
        ("import time; time.sleep(60)", "loading it took longer than 2 s"),
        (f"raise RuntimeError({UNSUPPORTED.partition(': ')[2]!r})", UNSUPPORTED),
        ("import os; os.abort()", "loading it crashed (SIGABRT)"),
        ("raise SystemExit('not here\\nnor there')", "SystemExit: not here nor there"),
        ("import os; print('no EFA', flush=True); os._exit(3)", "no EFA"),
    ],
)
def test_attempt_explains_a_failed_import(tmp_path: Path, code: str, obstacle: str) -> None:
    folder = tmp_path / "smdistributed/dataparallel/torch"
    folder.mkdir(parents=True)
    (folder / "torch_smddp.py").write_text(code)
    assert smddp.attempt(job(), {**os.environ, "PYTHONPATH": str(tmp_path)}, limit=2) == Library(obstacle, present=True)


def test_variables() -> None:
    assert smddp.variables(job(**ESTIMATOR)) == {
        "SMDATAPARALLEL_USE_HOMOGENEOUS": "1",
        "SMDATAPARALLEL_SERVER_ADDR": "algo-1",
        "SMDATAPARALLEL_SERVER_PORT": "7592",
        "SAGEMAKER_INSTANCE_TYPE": "ml.p4d.24xlarge",
        "FI_PROVIDER": "efa",
    }
    assert smddp.variables(job(1)) == {
        "SMDATAPARALLEL_USE_SINGLENODE": "1",
        "SAGEMAKER_INSTANCE_TYPE": "ml.p4d.24xlarge",
        "FI_PROVIDER": "efa",
    }


def test_plan_with_the_library() -> None:
    plan = plan_of(job(**ESTIMATOR), GPU8, {}, Library(launcher="/v/bin/smddprun"))
    assert (plan.backend, plan.kind, plan.world_size) == ("smddp", "mpirun", 16)
    assert shlex.join(plan.program) == "/v/bin/smddprun /v/bin/python -P -m berth.train.run_qa"
    assert plan.environment["BERTH_BACKEND"] == "smddp"
    assert plan.environment["NCCL_SOCKET_IFNAME"] == "eth0"
    assert plan.environment["FI_PROVIDER"] == "efa"
    assert "  backend: smddp, over eth0: smdistributed dataparallel was asked for, and its library can be imported" in (
        plan.render("algo-1").splitlines()
    )
    users = plan_of(job(program="train.py", **ESTIMATOR), GPU8, {}, Library())
    assert users.program == ("/v/bin/python", "-m", "mpi4py", "train.py")


@pytest.mark.parametrize(("hardware", "backend", "why"), [(GPU8, "nccl", "8 GPUs"), (CPU, "gloo", "no GPU")])
def test_plan_explains_the_fallback_in_one_line(hardware: Hardware, backend: str, why: str) -> None:
    plan = plan_of(job(**ESTIMATOR), hardware, {}, Library(UNSUPPORTED))
    assert plan.backend == plan.environment["BERTH_BACKEND"] == backend
    (line,) = [line for line in plan.render("algo-1").splitlines() if line.startswith("  backend: ")]
    assert line.startswith(f"  backend: {backend}, over eth0: {why}")
    assert line.endswith(f"; smdistributed dataparallel was asked for but can't be used ({UNSUPPORTED})")
    assert not [name for name in plan.environment if name.startswith(("SMDATA", "FI_"))]


REQUESTS = {
    "variable, run_qa": (None, {}, "smddp", True, "mpirun"),
    "variable, own program": ("train.py", {}, "smddp", True, "mpirun"),
    "estimator": ("train.py", ESTIMATOR, "", True, "mpirun"),
    "estimator, variable mpi": ("train.py", ESTIMATOR, "mpi", False, "mpirun"),
    "estimator, variable none": ("train.py", ESTIMATOR, "none", False, "process"),
    "not requested": (None, {}, "", False, "mpirun"),
}


@pytest.mark.parametrize(
    ("program", "hyperparameters", "variable", "used", "kind"), REQUESTS.values(), ids=REQUESTS.keys()
)
def test_who_requests_the_library(
    program: str | None, hyperparameters: dict[str, str], variable: str, used: bool, kind: str
) -> None:
    environ = {"BERTH_DISTRIBUTION": variable}
    plan = plan_of(job(program=program, **hyperparameters), GPU8, environ, Library())
    assert (plan.backend == "smddp", plan.kind) == (used, kind)
