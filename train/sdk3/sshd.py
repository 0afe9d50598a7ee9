"""The hook `/usr/sbin/sshd`: becomes the sshd that SDK v3's MPI driver needs, everybody else's as it was called.

The driver starts sshd by this path and then waits for ssh between the hosts, which it brings no key for. So the hosts
meet first (berth.train.sdk3.keys), and the sshd that starts then lets in nobody else. Where they can't meet, the driver
is ended with the sentence that says why: it would wait for 300 s and say only that it has.
"""

import json
import os
import pwd
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from berth.contract.errors import JobError
from berth.contract.host_names import listed
from berth.contract.launch_options import read_timeout
from berth.runtime.dispatch import NOT_FOUND
from berth.runtime.interfaces import interface_here
from berth.train.failures.failure import FailureFile
from berth.train.hosts import ssh
from berth.train.hosts.log import get_logger
from berth.train.hosts.outcome import failed, finish
from berth.train.hosts.rendezvous import PORT
from berth.train.sdk3.keys import exchange, make_keys, write_ssh_files
from berth.train.startup.sdk3_driver import REAL_SSHD, called_by_driver

_LONGEST_SECONDS = 240.0
"""The driver gives up after 300 s, without a reason; hosts do not start at the same moment."""
_ROOT = Path("/opt/ml")


def prepare(folder: Path, home: Path, environ: Mapping[str, str], port: int = PORT) -> Path:
    """Meet the other hosts; returns the path of the sshd_config. JobError if that fails."""
    host, leader = environ["SM_CURRENT_HOST"], environ["SM_MASTER_ADDR"]
    hosts = [leader, *(name for name in json.loads(environ["SM_HOSTS"]) if name != leader)]
    timeout = min(read_timeout(environ) or _LONGEST_SECONDS, _LONGEST_SECONDS)
    interface = interface_here(environ.get("SM_NETWORK_INTERFACE_NAME"))
    peers = exchange(host, hosts, make_keys(folder, home), timeout, port, interface)
    if peers:
        get_logger().info("sshd: ssh keys exchanged with %s", listed(peer.name for peer in peers))
    return write_ssh_files(folder, home, peers, environ)


def main() -> None:
    """Become the real sshd."""
    arguments = sys.argv[1:]
    if not os.path.exists(REAL_SSHD):
        get_logger().error("%s is not there; install openssh-server in the image (the kit's image has it).", REAL_SSHD)
        sys.exit(NOT_FOUND)
    if not called_by_driver():
        os.execv(REAL_SSHD, [REAL_SSHD, *arguments])
    failure_file = FailureFile(_ROOT / "output" / "failure")
    with ssh.private_folder() as folder:
        try:
            config = prepare(folder, Path(pwd.getpwuid(os.getuid()).pw_dir), os.environ)
            os.execv(REAL_SSHD, [REAL_SSHD, *arguments, "-e", "-f", str(config)])
        except JobError as error:
            sentence = str(error)
        except Exception as error:
            get_logger().error("%s", traceback.format_exc())
            sentence = f"ssh could not be set up ({type(error).__name__}: {error}); please report it with this log."
    _end(sentence, failure_file)


def _end(sentence: str, failure_file: FailureFile) -> NoReturn:
    """End the driver, and so this host, with a sentence."""
    finish(failed(sentence, os.environ.get("SM_CURRENT_HOST", "this host")), failure_file, _ROOT)
    if called_by_driver():
        os.kill(os.getppid(), signal.SIGTERM)
    sys.exit(1)
