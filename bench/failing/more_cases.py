"""What the first line of the failure file must say of 20 more programs, chosen after its module was finished."""

from bench.failing.cases import Case

_TWO_RANKS = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
_LABEL = "ValueError: label 7 of rows.csv is out of range (0..4) (raised at work.py:6 in load)"

MORE = (
    Case("typer_app.py", _LABEL),
    Case("own_excepthook.py", _LABEL),
    Case("thread_fails.py", _LABEL),
    Case(
        "old_syntax.py",
        "SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?",
        holds=("losses.py:3",),
    ),
    Case(
        "long_message.py",
        "ValueError: 6000 rows are wrong: ",
        holds=("(raised at long_message.py:10 in check)",),
    ),
    Case(
        "joblib_worker.py",
        "",
        holds=("TerminatedWorkerError: A worker process", "SIGSEGV", "joblib_worker.py:13 in prepare"),
        image_only=True,
    ),
    Case(
        "missing_command.sh",
        "missing_command.sh failed; its last line on stderr was: ",
        holds=("line 5: nvidia-smi: command not found",),
        lacks=("ValueError",),
        code=127,
    ),
    Case("too_slow.sh", "too_slow.sh failed", holds=("124",), code=124),
    Case("own_python.sh", _LABEL),
    Case(
        "perl_dies.sh",
        "perl_dies.sh failed; its last line on stderr was: no rows.csv: run split.pl first",
        lacks=("S3 said 503",),
        code=2,
    ),
    Case("killed_child.py", "", holds=("SIGKILL", "killed_child.py:10 in tokenize")),
    Case(
        "rank_exits.py",
        "rank 1 on algo-1: ",
        holds=("sys.exit at rank_exits.py:11 in find_rows",),
        lacks=("closed by peer", "SIGTERM", "hostname of the client socket"),
        code=3,
        environment=_TWO_RANKS,
    ),
    Case("exit_report.py", _LABEL, lacks=("tracker", "AttributeError")),
    Case(
        "json_rows.py",
        "datasets.exceptions.DatasetGeneration",
        holds=("An error occurred while generating the dataset", "json_rows.py:13 in read", "caused by"),
    ),
    Case(
        "ddp_unused.py",
        "rank ",
        holds=(
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
            "(raised at ddp_unused.py:20)",
        ),
        environment=_TWO_RANKS,
    ),
    Case("watchdog.py", "watchdog.py ", holds=("Timeout (0:00:02)!", "watchdog.py:9 in step")),
    Case("no_set_e.sh", "", holds=(_LABEL,)),
    Case("launcher_raises.py", "", holds=(_LABEL,)),
    Case(
        "no_guard.py",
        "RuntimeError: An attempt has been made to start a new process before the current process has finished its",
        holds=("no_guard.py:",),
        lacks=("BrokenProcessPool",),
    ),
    Case(
        "says_on_stdout.py",
        "says_on_stdout.py ",
        holds=("ERROR: no folder /opt/ml/input/data/train", "sys.exit at says_on_stdout.py:10 in find_rows"),
        code=2,
    ),
)
