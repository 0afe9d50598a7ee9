"""The pure parts of a run: log lines, owners, signals, ports, and what a host's end means."""

import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from berth.common import labels, owner
from berth.common.errors import UserError
from berth.local import cleanup, endpoint, job, training_progress
from berth.local.host_states import HostState, failure_text, first_failed
from berth.local.job_log import JobLog
from berth.local.log_stream import lines
from berth.local.session import Session
from berth.local.signals import Interrupted, Interrupts


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([b"a\nb\n"], ["a", "b"], id="two-lines"),
        pytest.param([b"a", b"b\nc"], ["ab", "c"], id="cut-anywhere"),
        pytest.param(["für".encode()[:2], "für".encode()[2:], b"\r\n"], ["für"], id="cut-in-a-character"),
        pytest.param([b"\xff\n"], ["\ufffd"], id="not-utf-8"),
        pytest.param([b"\n\n"], ["", ""], id="empty-lines"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_lines_of_a_log(chunks: list[bytes], expected: list[str]) -> None:
    assert list(lines(chunks)) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param(
            "step 40 of 312  loss: 2.13  learning rate: 4.50e-04", training_progress.Step(40, 312, 2.13), id="step"
        ),
        pytest.param("algo-1 | step 1 of 2  loss: 3.0", training_progress.Step(1, 2, 3.0), id="step-under-its-host"),
        pytest.param("evaluation 20 % done", training_progress.Evaluated(20), id="evaluation"),
        pytest.param("algo-1 | f1 = 59.3421", training_progress.Metric("f1", 59.3421), id="metric"),
        pytest.param("warning: batch size = large", None, id="for-people"),
        pytest.param("berth: step by step", None, id="no-number"),
    ],
)
def test_what_a_log_line_says(line: str, says: object) -> None:
    assert training_progress.read(line) == says


ENDED = HostState(0, "2026-11-21T10:00:05Z")


@pytest.mark.parametrize(
    ("states", "first"),
    [
        pytest.param({"algo-1": ENDED, "algo-2": ENDED}, None, id="none"),
        pytest.param(
            {"algo-1": HostState(137, "2026-11-21T10:00:09Z"), "algo-2": HostState(3, "2026-11-21T10:00:04Z")},
            "algo-2",
            id="the-others-were-stopped",
        ),
    ],
)
def test_the_host_that_failed_first_is_the_one_that_counts(states: dict[str, HostState], first: str | None) -> None:
    assert first_failed(states) == first


@pytest.mark.parametrize(
    ("told", "state", "says"),
    [
        pytest.param("old", ENDED, "", id="ended-well"),
        pytest.param("ValueError: boom\n", replace(ENDED, exit_code=1), "ValueError: boom", id="its-own-words"),
        pytest.param(
            None,
            replace(ENDED, exit_code=137),
            "The container ended with exit code 137 (SIGKILL) and wrote no /opt/ml/output/failure.",
            id="killed",
        ),
        pytest.param(
            None,
            replace(ENDED, exit_code=137, out_of_memory=True),
            "Out of memory: the kernel killed a process of this host: use smaller batches.",
            id="out-of-memory",
        ),
    ],
)
def test_why_a_host_failed(tmp_path: Path, told: str | None, state: HostState, says: str) -> None:
    (tmp_path / "output").mkdir()
    if told is not None:
        (tmp_path / "output/failure").write_text(told)
    assert failure_text(tmp_path, state) == says


def test_an_owner_is_found_again_by_labels_and_record() -> None:
    me = owner.this_process()
    found = me.labels("run-1")
    assert (found[labels.KIT], found[labels.RUN], found[labels.PID]) == ("run", "run-1", str(os.getpid()))
    assert owner.from_labels(found) == me
    assert owner.from_record(json.loads(json.dumps(me.record()))) == me
    assert not owner.is_gone(me)


def test_an_owner_that_ended_is_gone_and_its_number_may_be_used_again() -> None:
    me = owner.this_process()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert owner.is_gone(replace(me, pid=child.pid))
    assert owner.is_gone(replace(me, started="another time"))
    assert not owner.is_gone(replace(me, pid=child.pid, machine="another machine"))


def test_another_machine_of_the_same_host_name_is_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine(content: str) -> str:
        (tmp_path / "machine-id").write_text(content)
        monkeypatch.setattr(owner, "MACHINE_ID_FILES", (tmp_path / "machine-id", tmp_path / "boot_id"))
        return owner.this_process().machine

    (tmp_path / "boot_id").write_text("a-boot\n")
    mine = machine("00112233445566778899aabbccddeeff\n")
    theirs = replace(owner.this_process(), pid=999_999)
    assert "00112233445566778899aabbccddeeff" not in mine, "machine-id(5) asks not to publish it"
    assert owner.is_gone(theirs)
    assert machine("ffeeddccbbaa99887766554433221100\n") != mine
    assert not owner.is_gone(theirs)
    # Images of containers bring an empty file, or none: then it is the boot that tells two machines apart.
    empty = machine("\n")
    (tmp_path / "boot_id").write_text("another-boot\n")
    assert machine("") != empty


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({}, id="none"),
        pytest.param({labels.PID: "0", labels.STARTED: "", labels.MACHINE: "m"}, id="pid-0"),
        pytest.param({labels.PID: "-1", labels.STARTED: "", labels.MACHINE: "m"}, id="negative"),
        pytest.param({labels.PID: "12"}, id="pid-alone"),
    ],
)
def test_labels_without_an_owner(found: dict[str, str]) -> None:
    assert owner.from_labels(found) is None


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_to_be_looked_at(signum: signal.Signals) -> None:
    before = signal.getsignal(signum)
    with Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), signum)
        with pytest.raises(Interrupted, match="interrupted; what was started is gone") as caught:
            interrupts.wait(10)
        assert (caught.value.signum, caught.value.exit_code) == (signum, 128 + signum)
        assert caught.value.by == ("Ctrl-C" if signum == signal.SIGINT else signum.name)
        os.kill(os.getpid(), signum)
        assert interrupts.count == 2
    assert signal.getsignal(signum) == before


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"Port {port} is taken"):
            endpoint.require_port(port)
    endpoint.require_port(port)


@pytest.mark.parametrize("port", [-1, 0, 65536, 99999])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(UserError, match=f"^{port} is no port: choose one from 1 to 65535\\.$"):
        endpoint.require_port(port)


def test_the_server_listens_on_the_port_that_a_person_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MagicMock(side_effect=UserError("far enough"))
    for name, there in (("connect", MagicMock()), ("require_port", MagicMock()), ("archive", MagicMock())):
        monkeypatch.setattr(endpoint, name, there)
    session = MagicMock()
    session.__enter__.return_value.create = made
    monkeypatch.setattr(endpoint, "Session", lambda *_, **__: session)
    for port in (80, 1023, 18101):
        with pytest.raises(UserError, match="far enough"), endpoint.serving(tmp_path, image="any", port=port):
            pass
        assert made.call_args.kwargs["environment"] == {"SAGEMAKER_BIND_TO_PORT": str(port)}
        assert made.call_args.kwargs["ports"] == {f"{port}/tcp": ("127.0.0.1", port)}


class Scripted(BaseHTTPRequestHandler):
    """Answers a question about rain, and refuses any other."""

    def do_POST(self) -> None:
        """One request: the body comes back in the refusal."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = body == {"inputs": {"question": "Rain?", "context": "It rains."}}
        self.send_response(200 if good else 400)
        self.end_headers()
        self.wfile.write(b'{"score": 0.5, "start": 3, "end": 8, "answer": "rains"}' if good else b"no rain")

    def log_message(self, *arguments: object) -> None:
        """Stays quiet."""


def test_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HTTPServer(("127.0.0.1", 0), Scripted) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert endpoint.ask(url, "Rain?", "It rains.") == {"score": 0.5, "start": 3, "end": 8, "answer": "rains"}
        with pytest.raises(UserError, match="The endpoint answered 400: no rain"):
            endpoint.ask(url, "Snow?", "It rains.")
        server.shutdown()
    with pytest.raises(UserError, match="gave no answer"):
        endpoint.ask(url, "Rain?", "It rains.")


def test_two_runs_may_sweep_the_same_folder(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(100)]
    for folder in folders:
        folder.mkdir()
        (folder / "file").write_text("x")

    def sweep() -> None:
        for folder in folders:
            cleanup.remove_scratch(MagicMock(), "no-image", folder)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(sweep), pool.submit(sweep)]:
            done.result()
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_packed_stays(tmp_path: Path) -> None:
    session = Session(MagicMock(), "no-image", say=print, stop_grace=1.0)
    session.scratch = tmp_path / "run"
    roots = {host: session.scratch / host for host in ("algo-1", "algo-2")}
    for root in roots.values():
        (root / "model").mkdir(parents=True)
    (roots["algo-1"] / "model" / "model.safetensors").write_text("weights")
    with pytest.raises(UserError, match=r"can't be written .* What the job wrote is kept in") as refusal:
        job._pack(session, roots, "model", tmp_path / "no-such-folder" / "model.tar.gz")
    kept = tmp_path / f"kept-{session.run_id}"
    assert str(kept) in str(refusal.value)
    assert (kept / "algo-1" / "model" / "model.safetensors").read_text() == "weights"


def test_of_files_of_one_name_the_first_hosts_come_home_and_it_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    session = Session(MagicMock(), "no-image", say=said.append, stop_grace=1.0)
    roots = {host: tmp_path / host for host in ("algo-1", "algo-2")}
    for host, root in roots.items():
        (root / "model").mkdir(parents=True)
        for name in ("weights", host):
            (root / "model" / name).write_text(host)
    packed = job._pack(session, roots, "model", tmp_path / "model.tar.gz")
    assert packed is not None
    with tarfile.open(packed) as tar:
        assert tar.getnames() == ["algo-1", "algo-2", "weights"]
        assert tar.extractfile("weights").read() == b"algo-1"  # type: ignore[union-attr]
    assert said == ["model.tar.gz: 1 file(s) of algo-2 stay out, such as 'weights', which an earlier host left too."]


def test_a_job_that_is_stopped_brings_its_reasons_home_and_says_once_what_it_leaves(tmp_path: Path) -> None:
    said: list[str] = []
    session = Session(MagicMock(), "no-image", say=said.append, stop_grace=1.0)
    session.scratch = tmp_path / "run"
    output = tmp_path / "out"
    output.mkdir()
    (output / "model.tar.gz").write_text("of an earlier job")
    containers = {}
    for host, code in (("algo-1", 143), ("algo-2", 0)):
        for folder in ("model", "output"):
            (session.scratch / host / folder).mkdir(parents=True)
        containers[host] = MagicMock()
        containers[host].attrs = {"State": {"ExitCode": code, "FinishedAt": "", "OOMKilled": False}}
    (session.scratch / "algo-1/output/failure").write_text("the job was stopped by a signal")
    (session.scratch / "algo-2/model/weights").write_text("half")
    asked = job.TrainJob(output, list(containers), {}, {}, {})
    with JobLog(output, print, session.interrupts) as log:
        stop = job._stopped(session, asked, containers, log, Interrupted(signal.SIGINT))
    assert stop.exit_code == 130
    assert str(stop) == (
        f"the job was stopped by Ctrl-C; its log is {output / 'train.log'}, and how its hosts ended stands in "
        "failure-algo-1 beside it"
    )
    assert said == [
        f"model.tar.gz was of an earlier job: it is {output / 'earlier-model.tar.gz'} now.",
        "What lay in /opt/ml/model is not kept: no model.tar.gz is made of a job that was stopped.",
    ]
    names = {path.name for path in output.iterdir()}
    assert names == {"train.log", "failure-algo-1", "earlier-model.tar.gz"}


def test_hosts_that_had_to_be_killed_are_named() -> None:
    said: list[str] = []
    client = MagicMock()
    session = Session(client, "no-image", say=said.append, stop_grace=0.0)
    client.api.containers.return_value = [
        {"Id": f"{number}", "Names": [f"/berth-{session.run_id}-algo-{number}"]} for number in (2, 1)
    ]
    session.stop()
    assert said[1:] == ["algo-1, algo-2 did not end within 0 s and were killed."]
    assert {call.args for call in client.api.kill.call_args_list} == {
        ("1", "SIGTERM"),
        ("2", "SIGTERM"),
        ("1",),
        ("2",),
    }


def test_a_job_that_is_refused_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MagicMock()
    engine.info.return_value = {"MemTotal": 1e9, "NCPU": 2}
    monkeypatch.setattr(job, "connect", lambda: engine)
    monkeypatch.setattr(cleanup, "scratch_root", lambda: tmp_path / "scratch")
    monkeypatch.setattr(cleanup, "sweep", MagicMock())
    (tmp_path / "train.json").write_text("{}")
    wrong: dict[str, dict[str, Any]] = {
        "1000 hosts need": {"hosts": 1000},
        "no NVIDIA runtime": {"gpus": True},
        "there is no file or folder .*nope": {"model": tmp_path / "nope"},
        "no weights": {"model": tmp_path / "empty"},
    }
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/config.json").write_text("{}")
    for sentence, words in wrong.items():
        with pytest.raises(UserError, match=sentence):
            job.run_train(
                tmp_path / "train.json",
                image="any",
                output=tmp_path / "new/out",
                checkpoints=tmp_path / "new/kept",
                say=lambda _: None,
                **words,
            )
        assert {path.name for path in tmp_path.iterdir()} <= {"train.json", "empty", "scratch"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_the_users_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o500)
    for folder in ("theirs", "theirs/new/out"):
        with pytest.raises(UserError, match="is not yours to write to"):
            job.writable(tmp_path / folder)


def test_a_folder_that_cannot_be_made_is_refused_and_one_that_can_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for folder in ("file", "file/below", "nowhere"):
        with pytest.raises(UserError, match=r"can't be made .* is no folder"):
            job.writable(tmp_path / folder)
    assert job.writable(tmp_path / "new/out") == tmp_path / "new/out"
    assert not (tmp_path / "new").exists()
