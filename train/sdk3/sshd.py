"""The hook `/usr/sbin/sshd`: starts the sshd that SDK v3's MPI driver needs, and passes all other calls on unchanged.

The driver starts sshd by this path and then waits for ssh between the hosts, but provides no keys. So the hosts first
exchange keys (berth.train.sdk3.keys), and the sshd that starts then accepts nobody else. If they can't meet, this hook
ends the driver and reports the reason: the driver would wait for 300 s and then report only the time-out.
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
from berth.runtime.interfaces import existing_interface
from berth.train.failures.failure import FailureFile
from berth.train.hosts import ssh
from berth.train.hosts.log import get_logger
from berth.train.hosts.outcome import failed, finish
from berth.train.hosts.rendezvous import PORT
from berth.train.sdk3.keys import exchange, make_keys, write_ssh_files
from berth.train.startup.sdk3_driver import REAL_SSHD, called_by_driver

_LONGEST_SECONDS = 240.0
"""Less than the driver's own 300 s, after which it fails without a reason: hosts do not start at the same moment."""
_ROOT = Path("/opt/ml")


def prepare(folder: Path, home: Path, environ: Mapping[str, str], port: int = PORT) -> Path:
    """Exchange keys with the other hosts; returns the path of the sshd_config. JobError if that fails."""
    host, leader = environ["SM_CURRENT_HOST"], environ["SM_MASTER_ADDR"]
    hosts = [leader, *(name for name in json.loads(environ["SM_HOSTS"]) if name != leader)]
    timeout = min(read_timeout(environ) or _LONGEST_SECONDS, _LONGEST_SECONDS)
    interface = existing_interface(environ.get("SM_NETWORK_INTERFACE_NAME"))
    peers = exchange(host, hosts, make_keys(folder, home), timeout, port, interface)
    if peers:
        get_logger().info("sshd: ssh keys exchanged with %s", listed(peer.name for peer in peers))
    return write_ssh_files(folder, home, peers, environ)


def main() -> None:
    """Exchange keys if the driver is the caller, and become the real sshd."""
    arguments = sys.argv[1:]
    if not os.path.exists(REAL_SSHD):
        get_logger().error("%s is missing; install openssh-server in the image (the kit's image has it).", REAL_SSHD)
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
    """Report the sentence and end the driver, and with it this host."""
    finish(failed(sentence, os.environ.get("SM_CURRENT_HOST", "this host")), failure_file, _ROOT)
    if called_by_driver():
        os.kill(os.getppid(), signal.SIGTERM)
    sys.exit(1)
