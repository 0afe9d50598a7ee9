"""Start time and memory of a server's processes from /proc, and its port."""

import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from bench.serving import container
from berth.common.errors import UserError


def test_start_time_and_memory_of_process() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    hold = "import sys; held = b'x' * 50_000_000; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        after = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert before - 0.02 <= container.process_began(child.pid) <= after
        held = container.process_memory(child.pid)
        assert 50_000_000 < held < 150_000_000
        top = {"Titles": ["UID", "PID", "CMD"], "Processes": [["0", str(child.pid), "a"], ["0", str(os.getpid()), "b"]]}
        fake: Any = SimpleNamespace(top=lambda: top)
        server = container.Server(fake, 8080, 1.0, 2.0)
        assert server.processes() == [child.pid, os.getpid()]
        assert server.memory() > held
        child.communicate(b"")
    assert container.process_memory(child.pid) == 0
    assert container.process_began(child.pid) >= after


def test_first_free_port_is_used() -> None:
    with socket.socket() as taken, socket.socket() as next_one:
        taken.bind(("127.0.0.1", 0))
        next_one.bind(("127.0.0.1", 0))
        first, second = taken.getsockname()[1], next_one.getsockname()[1]
        taken.listen()
        next_one.close()
        assert container.free_port([first, second]) == second
        with pytest.raises(UserError, match=f"all ports from {first} to {first} are in use"):
            container.free_port([first])
