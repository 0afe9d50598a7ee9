"""Explains what ended a program, from records and from stderr."""

import re
from pathlib import Path

import pytest

from berth.runtime.hints.program import ProgramContext
from berth.train.failures.ends import Ends, PythonEnd
from berth.train.failures.explain import ProgramEnd, explain
from berth.train.failures.raised import Frame, Raised
from berth.train.failures.stderr_text import StderrText
from berth.train.startup.python_end import EXIT, RAISED
from tests.unit.train.failures.printed import ENDED_AT, ending_sentence, explain_printed

CODE = "/opt/ml/code"
TRACEBACK = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 9, in <module>
    main()
IndexError: index out of range in self
"""
BAR = "  0%|          | 0/1 [00:00<?, ?it/s]"
CHILD_FAILED = """\
Traceback (most recent call last):
  File "/v/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/v/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
"""


def deep_stack(frames: int) -> str:
    library = (
        '  File "/v/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _call_impl\n'
        "    return forward_call(*args, **kwargs)\n           ^^^^^^^^^^^^\n"
    )
    head, own, message = TRACEBACK.partition("    main()\n")
    return head + own + library * frames + message


RAN = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 9, in <module>
    subprocess.run(["./tool"], check=True)
subprocess.CalledProcessError: Command '['./tool']' returned non-zero exit status 3.
"""


@pytest.mark.parametrize(
    "stderr",
    [
        TRACEBACK,
        BAR + TRACEBACK,
        TRACEBACK + BAR + "\n",
        deep_stack(90),
        BAR + deep_stack(90) + "\r" + BAR,
        TRACEBACK + "\n" + CHILD_FAILED,
        RAN,
    ],
    ids=[
        "traceback only",
        "after a progress bar",
        "before a progress bar",
        "deep",
        "deep, with progress bars",
        "before a launcher's traceback",
        "of a launcher without a child",
    ],
)
def test_own_line_is_found_in_stderr(stderr: str) -> None:
    sentence = ending_sentence(stderr)
    (message,) = re.findall(r"^(?:IndexError|subprocess\.CalledProcessError): .*", stderr, re.MULTILINE)
    assert sentence.startswith(f"{message} (raised at train.py:9)")


def test_traceback_before_other_lines_is_ignored() -> None:
    later = ["epoch 2", "train.py: error: no rows"]
    assert explain_printed(TRACEBACK.splitlines(), 3, later=later).sentence == (
        "train.py failed; its last line on stderr was: train.py: error: no rows"
    )


LOST = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 4, in <module>
    for batch in loader:
RuntimeError: DataLoader worker (pid(s) 712) exited unexpectedly
"""


@pytest.mark.parametrize(
    ("stderr", "killed_for_memory", "blamed"),
    [(LOST, True, True), (LOST, False, False), (TRACEBACK, True, False)],
    ids=["lost worker", "lost worker without a kill", "other exception"],
)
def test_only_a_lost_worker_is_reported_as_out_of_memory(stderr: str, killed_for_memory: bool, blamed: bool) -> None:
    sentence = explain_printed((), later=stderr.splitlines(), killed_for_memory=killed_for_memory).sentence
    assert ("out of memory" in sentence) is blamed
    assert stderr.splitlines()[-1].partition(": ")[2] in sentence


def end(
    pid: int, when: float, kind: str = "", parents: tuple[int, ...] = (), code: int = 1, text: str = ""
) -> PythonEnd:
    raised = Raised(kind, "why", (Frame(f"{CODE}/{pid}.py", 3),)) if kind else None
    return PythonEnd(pid, parents, when, RAISED if kind else EXIT, code, text, raised=raised)


LAUNCHER = "subprocess.CalledProcessError"
ECHO = "torch.distributed.DistBackendError"
CAUSES: dict[str, tuple[tuple[PythonEnd, ...], int, int, int | None]] = {
    # name: (records, the program's process id, its exit code, the process id of the cause)
    "exception of the program": ((end(1, 90, "ValueError"),), 1, 1, 1),
    "child of a launcher": ((end(2, 89, "ValueError", (1,)), end(1, 90, LAUNCHER)), 1, 1, 2),
    "grandchild below two launchers": (
        (end(3, 88, "ValueError", (1, 2)), end(2, 89, LAUNCHER, (1,)), end(1, 90, LAUNCHER)),
        1,
        1,
        3,
    ),
    "first of two children": (
        (end(2, 88, "KeyError", (1,)), end(3, 89, "ValueError", (1,)), end(1, 90, LAUNCHER)),
        1,
        1,
        2,
    ),
    "child that is not an echo": (
        (end(2, 88, ECHO, (1,)), end(3, 89, "ValueError", (1,)), end(1, 90, LAUNCHER)),
        1,
        1,
        3,
    ),
    "child whose exit code is passed on": ((end(2, 89, "ValueError", (1,)), end(1, 90)), 1, 1, 2),
    "child that failed long before": ((end(2, 10, "ValueError", (1,)), end(1, 90)), 1, 1, 1),
    "child whose failure was handled": ((end(2, 89, "ValueError", (1,)), end(1, 90, "KeyError")), 1, 1, 1),
    "program with an exit text": ((end(2, 89, "ValueError", (1,)), end(1, 90, text="no rows")), 1, 1, 1),
    "last Python of a shell": ((end(2, 80, "ValueError"), end(3, 90, "KeyError")), 1, 1, 3),
    "Python of a shell with another exit code": ((end(2, 90, "ValueError"),), 1, 3, None),
    "rank of torchrun below a shell": ((end(3, 88, "ValueError", (2,)), end(2, 90, LAUNCHER)), 1, 1, 3),
}


@pytest.mark.parametrize(("records", "pid", "code", "cause"), CAUSES.values(), ids=CAUSES.keys())
def test_cause_of_exit(records: tuple[PythonEnd, ...], pid: int, code: int, cause: int | None) -> None:
    record = Ends(records).explaining(pid, code, ended_at=91)
    assert (record.pid if record else None) == cause


def explained(
    records: tuple[PythonEnd, ...], code: int, signalled_at: float = 0.0, hooked: bool = True
) -> tuple[str, float, int, bool]:
    ends = Ends(records, frozenset({1}) if hooked else frozenset())
    context = ProgramContext(Path(CODE))
    explanation = explain(
        ProgramEnd("train.py", "rank 1 on algo-2", 1, code, ENDED_AT, ends, StderrText(), context, signalled_at)
    )
    return explanation.sentence.partition(" (")[0], explanation.when, explanation.code, explanation.echo


CAUSE = ("ValueError: why", 990, 1, False)
STOPPED = "rank 1 on algo-2 was stopped by SIGTERM; the job was ended from outside before it was done."


@pytest.mark.parametrize(
    ("code", "signalled_at", "explanation"),
    [
        (-15, 0, CAUSE),
        (-15, 995, CAUSE),
        (1, 995, CAUSE),
        (-15, 980, (STOPPED, ENDED_AT, 143, True)),
        (1, 980, (*CAUSE[:3], True)),
    ],
    ids=[
        "killed, not by us",
        "killed by us long after the exception",
        "stop signal after the exception",
        "killed after a stop signal",
        "exception after a stop signal is an echo",
    ],
)
def test_exception_and_signal(code: int, signalled_at: float, explanation: tuple[str, float, int, bool]) -> None:
    assert explained((end(1, 990, "ValueError"),), code, signalled_at) == explanation
