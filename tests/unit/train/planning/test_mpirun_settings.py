"""Which of our settings for mpirun stay beside those of the user, and what the launch plan says of the others."""

import shlex

import pytest

from berth.train.planning.mpirun_settings import BIND_TO, UserSetting, settings_that_stay, user_settings
from berth.train.planning.plan import Plan
from tests.unit.train.planning.plans import job, plan_of


def plan(options: str = "", *, hosts: int = 2, **environ: str) -> Plan:
    hyperparameters = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": options}
    return plan_of(job(hosts, "train.py", **hyperparameters), environ=environ)


def settings(made: Plan) -> set[str]:
    """The names of the settings on mpirun's command line, ours and the user's."""
    words = made.command
    return {words[at + 1] for at, word in enumerate(words) if word.lstrip("-") in ("mca", "gmca")} | {
        word.lstrip("-") for word in words if "bind-to" in word
    }


RIVALS = {
    "exclude for data": ("-mca btl_tcp_if_exclude lo,docker0", {}, "btl_tcp_if_include"),
    "exclude for daemons": ("--mca oob_tcp_if_exclude lo", {}, "oob_tcp_if_include"),
    "its old name": ("--mca oob_tcp_exclude lo", {}, "oob_tcp_if_include"),
    "for all contexts": ("--gmca btl_tcp_if_exclude lo", {}, "btl_tcp_if_include"),
    "exported": ("-x OMPI_MCA_btl_tcp_if_exclude=lo", {}, "btl_tcp_if_include"),
    "a variable": ("", {"OMPI_MCA_oob_tcp_if_exclude": "lo"}, "oob_tcp_if_include"),
    "the same in a variable": ("", {"OMPI_MCA_btl_tcp_if_include": "eth1"}, "btl_tcp_if_include"),
    "failures in a variable": (
        "",
        {"OMPI_MCA_orte_abort_on_non_zero_status": "0"},
        "orte_abort_on_non_zero_status",
    ),
    "an old name of ssh": ("-mca orte_rsh_agent rsh", {}, "plm_rsh_agent"),
    "binding": ("--bind-to-core", {}, "bind-to"),
    "binding by its parameter": ("--mca hwloc_base_binding_policy core", {}, "bind-to"),
}


@pytest.mark.parametrize(("options", "environ", "ours"), RIVALS.values(), ids=RIVALS.keys())
def test_ours_is_left_out_where_the_user_sets_the_same_or_the_opposite(
    options: str, environ: dict[str, str], ours: str
) -> None:
    made, plain = plan(options, **environ), plan()
    assert settings(plain) - settings(made) == {ours}
    (reason,) = set(made.reasons) - set(plain.reasons)
    assert f"so mpirun does not get the plan's {ours} " in reason
    assert f"because: {reason}" in made.render("algo-1")


@pytest.mark.parametrize(
    "options", ["--mca btl ^tcp", "-mca pml ob1 -mca btl ^openib", "-x NCCL_SOCKET_IFNAME=^lo", "-verbose", "-mca"]
)
def test_ours_stays_beside_what_is_no_rival(options: str) -> None:
    made = plan(options)
    assert settings(plan()) <= settings(made)
    assert made.reasons == plan().reasons


def test_ours_is_left_out_where_a_file_of_the_image_sets_the_opposite() -> None:
    theirs = {"btl_tcp_if_exclude": UserSetting("lo", "/etc/x.conf sets")}
    ours = {"btl_tcp_if_include": "eth0", BIND_TO: "none"}
    assert settings_that_stay(ours, user_settings([], {}, theirs)) == (
        {BIND_TO: "none"},
        ("/etc/x.conf sets btl_tcp_if_exclude, so mpirun does not get the plan's btl_tcp_if_include eth0",),
    )


def test_what_the_plan_says_of_it_names_both() -> None:
    assert plan("-mca btl_tcp_if_exclude lo").reasons[-1] == (
        "your custom MPI options set btl_tcp_if_exclude, so mpirun does not get the plan's btl_tcp_if_include eth0"
    )
    assert plan(OMPI_MCA_hwloc_base_binding_policy="core").reasons[-1] == (
        "the variable OMPI_MCA_hwloc_base_binding_policy sets hwloc_base_binding_policy, so mpirun does not get the "
        "plan's bind-to none"
    )


def test_arguments_of_ssh_come_behind_ours_which_name_the_key() -> None:
    made = plan("-mca plm_rsh_args '-v -4' -verbose")
    assert "--mca plm_rsh_args '-F /k/ssh_config -v -4'" in shlex.join(made.command)
    assert made.command.count("plm_rsh_args") == 1
    assert "-verbose" in made.command
    assert "'-F /k/ssh_config -4'" in shlex.join(plan(OMPI_MCA_plm_rsh_args="-4").command)
    alone = plan("-mca plm_rsh_args -v", hosts=1)
    assert shlex.join(alone.command).count("-mca plm_rsh_args -v") == 1
