"""Our settings for mpirun are dropped if the user's conflict with them, and the launch plan says so."""

import shlex

import pytest

from berth.train.planning.mpirun_settings import BIND_TO, UserSetting, user_settings, without_conflicts
from berth.train.planning.plan import Plan
from tests.unit.train.planning.plans import job, plan_of


def plan(options: str = "", *, hosts: int = 2, **environ: str) -> Plan:
    hyperparameters = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": options}
    return plan_of(job(hosts, "train.py", **hyperparameters), environ=environ)


def settings(launch_plan: Plan) -> set[str]:
    """The names of the settings on mpirun's command line, ours and the user's."""
    words = launch_plan.command
    return {words[at + 1] for at, word in enumerate(words) if word.lstrip("-") in ("mca", "gmca")} | {
        word.lstrip("-") for word in words if "bind-to" in word
    }


CONFLICTS = {
    "exclude list for data": ("-mca btl_tcp_if_exclude lo,docker0", {}, "btl_tcp_if_include"),
    "exclude list for daemons": ("--mca oob_tcp_if_exclude lo", {}, "oob_tcp_if_include"),
    "deprecated name": ("--mca oob_tcp_exclude lo", {}, "oob_tcp_if_include"),
    "gmca": ("--gmca btl_tcp_if_exclude lo", {}, "btl_tcp_if_include"),
    "exported variable": ("-x OMPI_MCA_btl_tcp_if_exclude=lo", {}, "btl_tcp_if_include"),
    "opposite in a variable": ("", {"OMPI_MCA_oob_tcp_if_exclude": "lo"}, "oob_tcp_if_include"),
    "same parameter in a variable": ("", {"OMPI_MCA_btl_tcp_if_include": "eth1"}, "btl_tcp_if_include"),
    "end on failure in a variable": (
        "",
        {"OMPI_MCA_orte_abort_on_non_zero_status": "0"},
        "orte_abort_on_non_zero_status",
    ),
    "deprecated name of the ssh agent": ("-mca orte_rsh_agent rsh", {}, "plm_rsh_agent"),
    "binding": ("--bind-to-core", {}, "bind-to"),
    "binding as a parameter": ("--mca hwloc_base_binding_policy core", {}, "bind-to"),
}


@pytest.mark.parametrize(("options", "environ", "ours"), CONFLICTS.values(), ids=CONFLICTS.keys())
def test_conflicting_setting_is_dropped(options: str, environ: dict[str, str], ours: str) -> None:
    launch_plan, plain = plan(options, **environ), plan()
    assert settings(plain) - settings(launch_plan) == {ours}
    (reason,) = set(launch_plan.reasons) - set(plain.reasons)
    assert f"so mpirun does not get the plan's {ours} " in reason
    assert f"because: {reason}" in launch_plan.render("algo-1")


@pytest.mark.parametrize(
    "options", ["--mca btl ^tcp", "-mca pml ob1 -mca btl ^openib", "-x NCCL_SOCKET_IFNAME=^lo", "-verbose", "-mca"]
)
def test_other_options_drop_no_setting(options: str) -> None:
    launch_plan = plan(options)
    assert settings(plan()) <= settings(launch_plan)
    assert launch_plan.reasons == plan().reasons


def test_setting_is_dropped_if_a_file_of_the_image_sets_the_opposite() -> None:
    theirs = {"btl_tcp_if_exclude": UserSetting("lo", "/etc/x.conf sets")}
    ours = {"btl_tcp_if_include": "eth0", BIND_TO: "none"}
    assert without_conflicts(ours, user_settings([], {}, theirs)) == (
        {BIND_TO: "none"},
        ("/etc/x.conf sets btl_tcp_if_exclude, so mpirun does not get the plan's btl_tcp_if_include eth0",),
    )


def test_reason_names_both_settings() -> None:
    assert plan("-mca btl_tcp_if_exclude lo").reasons[-1] == (
        "your custom MPI options set btl_tcp_if_exclude, so mpirun does not get the plan's btl_tcp_if_include eth0"
    )
    assert plan(OMPI_MCA_hwloc_base_binding_policy="core").reasons[-1] == (
        "the variable OMPI_MCA_hwloc_base_binding_policy sets hwloc_base_binding_policy, so mpirun does not get the "
        "plan's bind-to none"
    )


def test_users_ssh_arguments_follow_ours() -> None:
    launch_plan = plan("-mca plm_rsh_args '-v -4' -verbose")
    assert "--mca plm_rsh_args '-F /k/ssh_config -v -4'" in shlex.join(launch_plan.command)
    assert launch_plan.command.count("plm_rsh_args") == 1
    assert "-verbose" in launch_plan.command
    assert "'-F /k/ssh_config -4'" in shlex.join(plan(OMPI_MCA_plm_rsh_args="-4").command)
    alone = plan("-mca plm_rsh_args -v", hosts=1)
    assert shlex.join(alone.command).count("-mca plm_rsh_args -v") == 1
