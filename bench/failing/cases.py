"""The expected first line of the failure file for each program of this folder."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Case:
    """One program.

    prefix: the beginning of the line. contains: texts that it must contain. excludes: texts of other exceptions, which
    it must not contain. code: the job's exit code. environment: variables of the job. memory: the container's limit.
    log: texts that the job's log must contain. image_only: needs a package that the tests' environment lacks.
    """

    program: str
    prefix: str
    contains: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    code: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    hyperparameters: dict[str, str] = field(default_factory=dict)
    memory: str = ""
    log: tuple[str, ...] = ()
    image_only: bool = False

    @property
    def in_image(self) -> bool:
        """Whether it needs a job of the image, for mpirun, packages, a memory limit or hyperparameters."""
        as_job = self.memory or self.hyperparameters or "BERTH_DISTRIBUTION" in self.environment
        return self.image_only or bool(as_job)


_TWO_RANKS = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
_LABEL = "ValueError: label 7 of rows.csv is out of range (0..4) (raised at work.py:6 in load)"
_HANDLED = ("S3 said 503",)
_CONFIG = "config.yaml is wrong: line 3: batch_size must be a number line 9: unknown key lr"

CASES = (
    Case("subprocess_check.py", _LABEL, excludes=("CalledProcessError",)),
    Case("subprocess_code.py", _LABEL),
    Case("torchrun.sh", _LABEL, contains=("in rank ",), excludes=("ChildFailedError",)),
    Case("torchrun_by_subprocess.py", _LABEL, contains=("in rank ",), excludes=("CalledProcessError",)),
    Case("accelerate_launch.sh", _LABEL, excludes=("CalledProcessError",)),
    Case(
        "spawn.py",
        "ValueError: label 6 of rows.csv is out of range (0..4) (raised at work.py:6 in load)",
        excludes=("ProcessRaisedException",),
    ),
    Case("process_pool.py", _LABEL),
    Case("process_code.py", _LABEL),
    Case(
        "loader_worker.py",
        "ValueError: label 5 of rows.csv is out of range (0..4) (raised at work.py:6 in load)",
        excludes=("Caught ValueError",),
    ),
    Case(
        "raise_from.py",
        "RuntimeError: rows.csv can't be read (raised at raise_from.py:12 in main)",
        contains=("caused by KeyError: 'label' (raised at raise_from.py:5 in column)",),
    ),
    Case(
        "during_handling.py",
        "FileNotFoundError: [Errno 2] No such file or directory: 'no-such-file.csv' (raised at during_handling.py:8 in",
        contains=("while handling KeyError: 'label'",),
    ),
    Case(
        "group.py",
        "ExceptionGroup: two rows are bad (2 sub-exceptions) (raised at group.py:14)",
        contains=("ValueError: invalid literal for int() with base 10: 'a' (raised at group.py:8 in rows)", "'b'"),
    ),
    Case("exit_lines.py", f"exit_lines.py ended itself: {_CONFIG} (sys.exit at exit_lines.py:9 in main)"),
    Case(
        "raise_exit_lines.py",
        "raise_exit_lines.py failed; its last lines on stderr were: " + _CONFIG,
        excludes=("epoch",),
    ),
    Case("exit_in_except.py", _LABEL, code=255),
    Case("raise_exit_in_except.py", _LABEL, code=255),
    Case(
        "arguments.py",
        "arguments.py failed; its last line on stderr was: arguments.py: error: argument --epochs: invalid int value: "
        "'three'",
        code=2,
    ),
    Case("handled_then_ends_well.py", "", code=0),
    Case("orphans.py", "", code=0, log=("zombies: 0",)),
    Case("handled_then_fails.py", _LABEL, excludes=_HANDLED),
    Case(
        "handled_then_exits.py",
        "handled_then_exits.py failed and gave no reason (sys.exit at handled_then_exits.py:10)",
        excludes=_HANDLED,
        code=3,
    ),
    Case(
        "crash.py",
        "crash.py on algo-1 was killed by SIGSEGV, a crash in native code; set PYTHONFAULTHANDLER to 1",
        excludes=("last lines below",),
        code=139,
    ),
    Case(
        "crash.py",
        "crash.py on algo-1 was killed by SIGSEGV, a crash in native code (called at crash.py:7 in step)",
        environment={"PYTHONFAULTHANDLER": "1"},
        code=139,
    ),
    Case("abort.py", "abort.py on algo-1 was killed by SIGABRT, a crash in native code", code=134),
    Case(
        "leaves_at_once.py",
        "leaves_at_once.py failed and wrote nothing to stderr (os._exit at leaves_at_once.py:7 in leave)",
        code=7,
    ),
    Case(
        "bar.py",
        "ValueError: label 5 of rows.csv is out of range (0..4) (raised at work.py:6 in load)",
        excludes=("it/s", "%|"),
    ),
    Case("odd_bytes.py", "ValueError: stra\xdfe (raised at odd_bytes.py:10)"),
    Case(
        "deep_stack.py",
        "IndexError: index out of range in self (raised at deep_stack.py:14 in forward)",
        excludes=("it/s",),
    ),
    Case(
        "launched_arguments.sh",
        "takes_arguments.py failed; its last line on stderr was: takes_arguments.py: error: unrecognized arguments: "
        "--local",
        contains=("int(os.environ.get(",),
        excludes=("ChildFailedError", "===="),
    ),
    Case(
        "launched_kill.py",
        "rank 1, which launched_kill.py started, was killed by SIGKILL",
        excludes=("CalledProcessError", "===="),
    ),
    Case("child_exits.py", "exit_lines.py ended itself: config.yaml is wrong"),
    Case("odd_name.py", "odd_name.py ended itself: no rows in caf", contains=("(sys.exit at odd_name.py:8)",)),
    Case("arrow_csv.py", "pyarrow.lib.ArrowInvalid: ", contains=("(raised at arrow_csv.py:8)",)),
    Case(
        "signals_itself.py",
        "signals_itself.py on algo-1 was stopped by SIGTERM, which the program or another process",
        code=143,
    ),
    Case("program_on_stdin.sh", "json.decoder.JSONDecodeError: Expecting value", contains=("(raised at <stdin>:3)",)),
    Case(
        "not_executable.py",
        "PermissionError: [Errno 13] Permission denied: './tool' (raised at not_executable.py:6)",
    ),
    Case("ranks_at_once.py", "rank ", contains=("ValueError: no rows for rank ",), environment=_TWO_RANKS),
    Case(
        "rank_fails_first.py",
        f"rank 1 on algo-1: {_LABEL}",
        excludes=("closed by peer", "in rank"),
        environment=_TWO_RANKS,
    ),
    Case(
        "rank_dies_slowly.py",
        "rank 1 on algo-1: ValueError: label 5 of rows.csv is out of range (0..4) (raised at work.py:6 in load)",
        excludes=("SIGTERM", "it/s", "closed by peer"),
        environment=_TWO_RANKS,
    ),
    Case(
        "lost_worker.py",
        "a process of lost_worker.py was killed: out of memory (peak ",
        contains=("DataLoader worker",),
        memory="700m",
    ),
    Case(
        "many_hyperparameters.py",
        "",
        code=0,
        hyperparameters={f"p{number}": "x" * 2400 for number in range(96)},
        log=("not set for the program: SM_HPS (", "hyperparameters; False True"),
    ),
    Case("typer_app.py", _LABEL),
    Case("own_excepthook.py", _LABEL),
    Case("thread_fails.py", _LABEL),
    Case(
        "old_syntax.py",
        "SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?",
        contains=("losses.py:3",),
    ),
    Case(
        "long_message.py",
        "ValueError: 6000 rows are wrong: ",
        contains=("(raised at long_message.py:10 in check)",),
    ),
    Case(
        "joblib_worker.py",
        "",
        contains=("TerminatedWorkerError: A worker process", "SIGSEGV", "joblib_worker.py:13 in prepare"),
        image_only=True,
    ),
    Case(
        "missing_command.sh",
        "missing_command.sh failed; its last line on stderr was: ",
        contains=("line 5: nvidia-smi: command not found",),
        excludes=("ValueError",),
        code=127,
    ),
    Case("too_slow.sh", "too_slow.sh failed", contains=("124",), code=124),
    Case("own_python.sh", _LABEL),
    Case(
        "perl_dies.sh",
        "perl_dies.sh failed; its last line on stderr was: no rows.csv: run split.pl first",
        excludes=("S3 said 503",),
        code=2,
    ),
    Case("killed_child.py", "", contains=("SIGKILL", "killed_child.py:10 in tokenize")),
    Case(
        "rank_exits.py",
        "rank 1 on algo-1: ",
        contains=("sys.exit at rank_exits.py:11 in find_rows",),
        excludes=("closed by peer", "SIGTERM", "hostname of the client socket"),
        code=3,
        environment=_TWO_RANKS,
    ),
    Case("exit_report.py", _LABEL, excludes=("tracker", "AttributeError")),
    Case(
        "json_rows.py",
        "datasets.exceptions.DatasetGeneration",
        contains=("An error occurred while generating the dataset", "json_rows.py:13 in read", "caused by"),
    ),
    Case(
        "ddp_unused.py",
        "rank ",
        contains=(
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
            "(raised at ddp_unused.py:20)",
        ),
        environment=_TWO_RANKS,
    ),
    Case("watchdog.py", "watchdog.py ", contains=("Timeout (0:00:02)!", "watchdog.py:9 in step")),
    Case("no_set_e.sh", "", contains=(_LABEL,)),
    Case("launcher_raises.py", "", contains=(_LABEL,)),
    Case(
        "no_guard.py",
        "RuntimeError: An attempt has been made to start a new process before the current process has finished its",
        contains=("no_guard.py:",),
        excludes=("BrokenProcessPool",),
    ),
    Case(
        "says_on_stdout.py",
        "says_on_stdout.py ",
        contains=("ERROR: no folder /opt/ml/input/data/train", "sys.exit at says_on_stdout.py:10 in find_rows"),
        code=2,
    ),
)
