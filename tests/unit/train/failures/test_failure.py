"""From a program's stderr to the sentence in /opt/ml/output/failure."""

from pathlib import Path

import pytest

from berth.runtime.failure_file import SENTENCE_CHARACTERS
from berth.train.failures import failure
from berth.train.failures.echo import is_echo
from berth.train.failures.failure import FailureFile, FailureReport
from tests.unit.train.failures.printed import ending_sentence

PLAIN = """\
some log line
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 12, in main
    qa.load()
    ^^^^^^^^^
  File "/opt/ml/code/lib/qa.py", line 3, in load
    json.loads("")
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
"""
CHAINED = (
    PLAIN
    + """
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 20, in <module>
    main()
ValueError: no rows
  in file a.json
"""
)
SYNTAX = """\
  File "/opt/ml/code/train.py", line 1
    print(
         ^
SyntaxError: '(' was never closed
"""
INSTALLED = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/v/lib/python3.11/site-packages/berth/train/run_qa.py", line 9, in main
    fit()
  File "/v/lib/python3.11/site-packages/torch/x.py", line 1, in fit
    raise KeyError("a")
KeyError: 'a'
"""
BERTH_ERROR = """\
Traceback (most recent call last):
  File "/v/lib/python3.11/site-packages/berth/train/run_qa.py", line 9, in main
    fit()
berth.qa.squad.DataError: train.json holds no question; give it SQuAD's layout.
"""
SMDISTRIBUTED_ERROR = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 8, in main
    model(x)
  File "/v/lib/python3.11/site-packages/berth/train/smdistributed/modelparallel/torch/model.py", line 9, in forward
    raise OutsideStep
smdistributed.modelparallel.torch.coordinator.OutsideStep: The model was called outside a step
"""
LATER = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 40, in main
    raise ValueError(text)
ValueError: my data is strange: row 17
  has two labels
see the wiki{noise}
"""
NOISE = {
    "no other line": "",
    "torch": "\n[rank1]:[W1122 20:00:00.1 ProcessGroupGloo.cpp:1] Warning: destroy_process_group() was not called",
    "Open MPI": "\n" + "-" * 60 + "\nMPI_ABORT was invoked on rank 1",
    "Python warning": "\n/usr/lib/python3.11/multiprocessing/resource_tracker.py:224: UserWarning: leaked semaphores",
    "exception in a thread": "\nException ignored in: <function f>",
}
WINDOWS_LINE_ENDS = {
    "command": "helper.sh: line 1: $'\\r': command not found",
    "env": "/usr/bin/env: \u2018python3\\r\u2019: No such file or directory",
    "keyword": "helper.sh: line 1: syntax error near unexpected token `$'do\\r''",
    "folder": "helper.sh: line 1: cd: $'/tmp\\r': No such file or directory",
    "file": "python3: can't open file '/opt/ml/code/train.py\\r': [Errno 2] No such file or directory",
}
FULL_DISK = {
    "Python": "OSError: [Errno 28] No space left on device: '/opt/ml/model/weights'",
    "safetensors": "safetensors_rust.SafetensorError: Error while serializing: I/O error: Os { code: 28, kind: "
    "StorageFull }",
}
# torch's exception with NCCL 2.29 (cu130); NCCL 2.21 (cu124) gives no reason.
NCCL = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 7, in <module>
    dist.all_reduce(tensor)
torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error (run with \
NCCL_DEBUG=INFO for details), NCCL version 2.29.7
ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
Last error:
Error while creating shared memory segment /dev/shm/nccl-WU88OE (size 9637888){reason}
"""
FULL_TMP = """\
[algo-2:00028] PMIX ERROR: OUT-OF-RESOURCE in file src/client/pmix_client.c at line 277
*** An error occurred in MPI_Init_thread
[algo-2:00028] Local abort before MPI_INIT completed completed successfully, but am not able to aggregate error messages
"""
MORE_DISK = "a disk of this host is full: give the job a larger one (volume_size of the estimator), or write less"


def test_long_message_is_cut_before_place() -> None:
    text = LATER.format(noise="\n" + "very " * 400)
    sentence = ending_sentence(text)
    assert sentence.endswith("… (raised at train.py:40 in main)")
    assert 600 < len(sentence) <= SENTENCE_CHARACTERS - len("rank 12345 on algo-12: ")


def test_failure_text_masks_secrets() -> None:
    text = FailureReport("GET https://u:pw@h/ failed", detail=("HF_TOKEN=abc",)).text()
    assert text == "GET https://***@h/ failed\nexit code 1\nHF_TOKEN=***\n"


SENTENCES = {
    "raised in own code": (
        PLAIN,
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0) (raised at lib/qa.py:3 in load)",
    ),
    "last exception of a chain": (CHAINED, "ValueError: no rows in file a.json (raised at train.py:20)"),
    "syntax error": (SYNTAX, "SyntaxError: '(' was never closed (raised at train.py:1)"),
    "raised in installed code": (
        INSTALLED,
        "KeyError: 'a' (raised at /v/lib/python3.11/site-packages/torch/x.py:1 in fit)",
    ),
    "error of berth": (BERTH_ERROR, "train.json holds no question; give it SQuAD's layout."),
    "error of open smdistributed": (
        SMDISTRIBUTED_ERROR,
        "OutsideStep: The model was called outside a step (raised at train.py:8 in main)",
    ),
    "text without exception": ("out of data\n\n", "train.py failed; its last line on stderr was: out of data"),
    "no output": (
        "",
        "train.py failed and wrote nothing to stderr; print the reason to stderr before exiting.",
    ),
    **{
        f"exception before a line of {name}": (
            LATER.format(noise=noise),
            "ValueError: my data is strange: row 17 has two labels see the wiki (raised at train.py:40 in main)",
        )
        for name, noise in NOISE.items()
    },
    **{
        f"Windows line end in a {name}": (
            f"{line}\nover\n",
            "train.py failed because a script that it runs has Windows line ends (CRLF): convert it with "
            "sed -i 's/\\r$//', or have your editor save it with LF.",
        )
        for name, line in WINDOWS_LINE_ENDS.items()
    },
    **{
        f"full disk, {name}": (
            f'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 3, in save\n{message}\n',
            f"{message} (raised at train.py:3 in save); {MORE_DISK}",
        )
        for name, message in FULL_DISK.items()
    },
    "NCCL, but /dev/shm is not full": (
        NCCL.format(reason=", error: Cuda failure 'invalid argument'"),
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error (run "
        "with NCCL_DEBUG=INFO for details), NCCL version 2.29.7 ncclSystemError: System call (e.g. socket, malloc) or "
        "external library call failed or device error. Last error: Error while creating shared memory segment "
        "/dev/shm/nccl-WU88OE (size 9637888), error: Cuda failure 'invalid argument' (raised at train.py:7)",
    ),
    "full /tmp": (FULL_TMP, f"train.py could not start under mpirun, whose files are in /tmp: {MORE_DISK}"),
}


@pytest.mark.parametrize(("stderr", "sentence"), SENTENCES.values(), ids=SENTENCES.keys())
def test_sentence(stderr: str, sentence: str) -> None:
    assert ending_sentence(stderr) == sentence


LITTLE_SHM = {
    "NCCL 2.21": NCCL.format(reason=""),
    "NCCL 2.29": NCCL.format(reason=", error: No space left on device (28)"),
    "NCCL's warning": "algo-1:7:9 [0] NCCL WARN Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes\n",
    "torch's loader": "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that "
    "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n",
    "torch's file": "RuntimeError: unable to write to file </torch_12_345_0>: No space left on device (28)\n",
    "Python": "OSError: [Errno 28] No space left on device: '/dev/shm/cache'\n",
}


@pytest.mark.parametrize("stderr", LITTLE_SHM.values(), ids=LITTLE_SHM.keys())
def test_full_shared_memory_names_shm_size(stderr: str) -> None:
    sentence = ending_sentence(stderr)
    assert sentence.startswith("/dev/shm is too small for train.py: give the container more (docker run --shm-size 8g,")
    assert stderr.splitlines()[-1][:60] in sentence
    assert not is_echo(sentence), "NCCL's message alone would count as an echo"


def test_bus_error_reported_by_shell() -> None:
    assert ending_sentence("Bus error (core dumped)", 135, "train.sh").startswith(
        "a program that train.sh ran was killed by SIGBUS: /dev/shm is probably full; give the container more (docker "
    )


@pytest.mark.parametrize(
    ("code", "line", "begin"),
    [
        (
            135,
            "mpirun noticed that process rank 3 with PID 0 on node algo-2 exited on signal 7 (Bus error).",
            "rank 3 on algo-2 was killed by SIGBUS: /dev/shm is probably full; give the container more (docker ",
        ),
        (
            137,
            "mpirun noticed that process rank 1 with PID 0 on node algo-2 exited on signal 9 (Killed).",
            "rank 1 on algo-2 was killed by SIGKILL;",
        ),
        (
            1,
            "ORTE was unable to reliably start one or more daemons.",
            "mpirun ended with exit code 1 before any rank reported a failure: ORTE was unable to reliably start one "
            "or more daemons.",
        ),
    ],
    ids=["bus error", "SIGKILL", "other text"],
)
def test_launcher_sentence(code: int, line: str, begin: str) -> None:
    assert failure.launcher_sentence(code, ["-" * 40, line, "", "-" * 40]).startswith(begin)


REFUSED = {
    "mpirun: Error: unknown option \"--nonsense\"\nType 'mpirun --help' for usage.": (
        "mpirun does not know the option --nonsense"
    ),
    # From `-mca btl`, which takes the path of our Python as its second value.
    "mpirun: Error: unknown option \"-P\"\nType 'mpirun --help' for usage.": (
        "the value, or one of the values, of mpirun's last option is missing"
    ),
    """\
Your job has requested more processes than the ppr for
this topology can support:

  App: /opt/berth/bin/python
  Number of procs:  2
  PPR: 1:node

Please revise the conflict and try again.""": (
        "1:node (from -N, -npernode or ppr) is fewer processes per host than the launch plan has"
    ),
    "mpirun: Error: option \"-mca\" did not have enough parameters (2)\nType 'mpirun --help' for usage.": (
        "mpirun's option -mca needs 2 values, and some are missing"
    ),
    """\
---------------------------------------------------------------------------
The following MCA parameter has been listed multiple times on the
command line:

  MCA param:   btl_tcp_if_include

MCA parameters can only be listed once on a command line to ensure there
is no ambiguity as to its value.  Please correct the situation and
try again.
---------------------------------------------------------------------------""": (
        "the MCA parameter btl_tcp_if_include is given to mpirun twice"
    ),
    """\
The specified mapping policy is not recognized:

  Policy: foo

Please check for a typo or ensure that the option is a supported
one.""": "mpirun knows no mapping policy foo",
    """\
Open MPI has detected that a parameter given to a command line
option does not match the expected format:

  Option: timeout
  Param:  abc

This is frequently caused by omitting to provide the parameter""": "mpirun's option timeout does not take abc",
    """\
NOTE: A common cause for this error is misspelling a mpirun command
      line parameter option (remember that mpirun interprets the first
      unrecognized command line token as the executable).

Node:       algo-1
Executable: stray
--------------------------------------------------------------------------""": (
        "stray is not an option of mpirun, which took it for the program"
    ),
}


@pytest.mark.parametrize("output", REFUSED)
def test_launcher_sentence_names_rejected_option(output: str) -> None:
    assert failure.launcher_sentence(1, output.splitlines()) == (
        f"{REFUSED[output]}; correct or remove it in the custom MPI options of distribution."
    )


CAUSES = {
    "earliest": ([("b", 2.0, False), ("a", 1.0, False)], "a"),
    "earlier echo": ([("echo", 1.0, True), ("real", 2.0, False)], "real"),
    "only echoes": ([("later", 2.0, True), ("first", 1.0, True)], "first"),
}


@pytest.mark.parametrize(("reports", "sentence"), CAUSES.values(), ids=CAUSES.keys())
def test_cause(reports: list[tuple[str, float, bool]], sentence: str) -> None:
    report = failure.cause(FailureReport(sentence=text, when=when, echo=echo) for text, when, echo in reports)
    assert report.sentence == sentence


@pytest.mark.parametrize(
    ("text", "echo"),
    [
        ("RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:2", True),
        ("torch.distributed.DistBackendError: NCCL error", True),
        ("ValueError: no rows", False),
    ],
)
def test_is_echo(text: str, echo: bool) -> None:
    assert is_echo(text) is echo


def test_text_is_at_most_1024_characters() -> None:
    report = FailureReport("it broke", 3, "algo-2", 1, tuple(f"line {number} {'x' * 60}" for number in range(30)))
    text = report.text()
    assert len(text) <= 1024
    assert text.splitlines()[:2] == ["it broke", "rank 1 on algo-2, exit code 3"]
    assert text.splitlines()[-1].startswith("line 29")


def test_report_fields_round_trip() -> None:
    report = FailureReport("it broke", 3, "algo-2", 1, ("a", "b"), 12.5, echo=True)
    assert FailureReport.from_fields(report.to_fields()) == report


def test_report_fields_are_cut() -> None:
    fields = FailureReport("x\n" * 9999, detail=("y" * 9999,) * 999).to_fields()
    assert len(fields["sentence"]) <= 900
    assert (len(fields["detail"]), len(fields["detail"][0])) == (30, 400)


def test_failure_file_keeps_text_of_program_only(tmp_path: Path) -> None:
    path = tmp_path / "failure"
    path.write_text("of an earlier run")
    file = FailureFile(path)
    assert file.write(FailureReport("new"))
    assert path.read_text().startswith("new")
    file = FailureFile(path)
    path.write_text("the program's own words, and more of them")
    assert not file.write(FailureReport("ours"))
    assert path.read_text() == "the program's own words, and more of them"


def test_lone_echo_is_explained() -> None:
    peer = "RuntimeError: Connection closed by peer [127.0.0.1]:7 (raised at train.py:16)"
    sentence = failure.with_lone_echo_explained(FailureReport(peer, echo=True)).sentence
    assert sentence.startswith(f"{peer}; no rank reported another reason")
    assert "drop_last" in sentence
    other = FailureReport("ValueError: no rows")
    assert failure.with_lone_echo_explained(other) is other
