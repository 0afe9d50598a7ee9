"""Do README's commands work on a Debian 12 with only the packages that README names?

Usage: python -m bench.fresh [COMMAND...]

`make fresh` runs this; the default commands, `demo test`, take about an hour. A command is a target of make.

mmdebstrap creates the Debian as in docker/base.sh. README's packages are installed there, and the checked-out commit is
cloned. The Debian runs as a container with its own engine, whose files are in a volume, so that removing the container
removes everything, also after Ctrl-C; after SIGKILL run `build.py clean`. This machine's network settings (CA, indexes,
wheel folders, proxies, apt's settings) are put where a user would put them: in /etc/pip.conf, in /etc/apt and in
variables. Needs root, an engine on this machine, and 25 GB of disk.

The log is written to out/fresh.log. After `demo test` succeeded, bench/results/DATE-fresh.md gets the times and the
last lines.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from bench import program
from berth.common import engine, http, owner
from berth.common.errors import UserError
from berth.images.network import build_network
from berth.images.pins import pins

PACKAGES = ("ca-certificates", "git", "make", "python3")
"""The packages that README tells users to install; `make` installs everything else."""
COMMANDS = ("demo", "test")
DISK_GB = 25
HOME = "/root/berth"
TAIL = 20

# Options for an engine inside the container. --privileged needs all capabilities, which a cloud machine may lack.
POWERS = (
    *("--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cap-add", "SYS_PTRACE"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--security-opt", "systempaths=unconfined", "--device-cgroup-rule", "a *:* rwm"),
)

# The engine inside needs writable control groups. In version 2 a group with subgroups must not contain
# processes (https://docs.kernel.org/admin-guide/cgroup-v2.html, "no internal process constraint").
# `lay_out` fills /machine.
_SET_UP = f"""
set -eu
for folder in /sys /sys/fs/cgroup /sys/fs/cgroup/*; do
    if mountpoint -q "$folder"; then mount -o remount,bind,rw "$folder"; fi
done
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir /sys/fs/cgroup/init
    while read -r id; do echo "$id" >/sys/fs/cgroup/init/cgroup.procs || true; done </sys/fs/cgroup/cgroup.procs
    sed 's/[^ ]*/+&/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
fi
cd /machine
if [ -f apt ]; then cp apt /etc/apt/apt.conf.d/90machine; fi
if [ -f apt-auth ]; then cp apt-auth /etc/apt/auth.conf.d/machine.conf; fi
if [ -f apt-sources ]; then cp apt-sources /etc/apt/sources.list; fi
if [ -f pip ]; then cp pip /etc/pip.conf; fi
export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes
apt-get update -qq
apt-get install -qq --yes --no-install-recommends {" ".join(PACKAGES)} >/dev/null
git clone --quiet kit.bundle {HOME}
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit code, duration and last lines of one command."""

    command: str
    code: int
    seconds: float
    tail: tuple[str, ...]


def make_targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (pins.ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("fresh", __doc__)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=f"default: {' '.join(COMMANDS)}")
    commands = parser.parse_args(words).commands or COMMANDS
    if unknown := [each for each in commands if each not in make_targets()]:
        raise UserError(f"make has no target {', '.join(unknown)}: `make help` lists them.")
    if os.geteuid() != 0:
        raise UserError("the Debian needs root: run `sudo make fresh`.")
    client = engine.connect()
    docker = str(engine.find_client())
    free_gb = shutil.disk_usage(client.info()["DockerRootDir"]).free / 1e9
    if free_gb < DISK_GB:
        raise UserError(
            f"the engine's disk has {free_gb:.0f} GB free, but up to {DISK_GB} are needed: free some first."
        )
    commit = git("rev-parse", "--short=12", "HEAD")
    if git("status", "--porcelain"):
        print(f"fresh: uncommitted changes are ignored; testing {commit}", flush=True)
    log = pins.ROOT / "out" / "fresh.log"
    log.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="berth-fresh-") as folder, log.open("w") as file:
        network = build_network.gather(os.environ)
        git("bundle", "create", "--quiet", f"{folder}/kit.bundle", "HEAD")
        lay_out(network, Path(folder))
        with machine(docker, network, Path(folder)) as name:
            command_line = ["sh", "-c", f"cd {HOME} && {_VERSIONS}"]
            versions = subprocess.run([docker, "exec", name, *command_line], capture_output=True, text=True).stdout
            outcomes = []
            for command in commands:
                print(f"fresh: make {command}", flush=True)
                outcomes.append(run(docker, name, command, settings(network, os.environ), file))
                if outcomes[-1].code != 0:
                    break
    text = make_page(commit, versions, outcomes)
    print(text)
    print(f"fresh: the log is in {log}")
    if any(outcome.code != 0 for outcome in outcomes):
        return 1
    if tuple(commands) == COMMANDS:
        path = pins.ROOT / "bench" / "results" / f"{time.strftime('%Y-%m-%d')}-fresh.md"
        path.write_text(text)
        print(f"fresh: wrote {path}")
    return 0


def git(*words: str) -> str:
    process = subprocess.run(["git", "-C", str(pins.ROOT), *words], capture_output=True, text=True)
    if process.returncode != 0:
        raise UserError(f"`git {words[0]}` failed ({process.stderr.strip()}): run this in a clone.")
    return process.stdout.strip()


def lay_out(network: build_network.Network, folder: Path) -> None:
    """Write the network's settings as files for a whole machine."""
    texts = {"apt": network.apt, "apt-auth": network.apt_auth, "apt-sources": network.apt_sources}
    # Wheel folders are mounted at the same path.
    index = replace(network.index, links=(*network.index.links, *map(str, network.index.folders)))
    texts["pip"] = index.pip_conf() if index else ""
    if network.ca:
        (folder / "ca.pem").write_bytes(network.ca.read_bytes())
        texts["apt"] += 'Acquire::https::CaInfo "/machine/ca.pem";\n'
        texts["pip"] = (texts["pip"] or "[global]\n") + "cert = /machine/ca.pem\n"
    for name, text in texts.items():
        if text:
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(text)
    folder.chmod(0o755)  # apt reads the CA as the user _apt


def settings(network: build_network.Network, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the user's shell: those of a login, and the network's."""
    plain = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    kept = [*network.proxies, "PIP_DEFAULT_TIMEOUT", "UV_HTTP_TIMEOUT"]
    ca = {"SSL_CERT_FILE": "/machine/ca.pem", "REQUESTS_CA_BUNDLE": "/machine/ca.pem"} if network.ca else {}
    return {**plain, **{name: environ[name] for name in kept if name in environ}, **ca}


_VERSIONS = """. /etc/os-release; echo "$PRETTY_NAME $(cat /etc/debian_version), Python $(python3 -c 'import platform
print(platform.python_version())'), $(make --version | head -n 1), $(git --version)" """


@contextmanager
def machine(docker: str, network: build_network.Network, folder: Path) -> Iterator[str]:
    """Start and set up the Debian, still without an engine; yields the container's name and removes it at the end."""
    name = f"berth-fresh-{os.getpid()}"
    tag = f"berth-base:fresh-{os.getpid()}"
    command = [docker, "run", "--detach", "--init", *POWERS, "--name", name, "--hostname", "debian"]
    command += ["--shm-size", "4g", "--volume", "/var/lib/docker", "--volume", f"{folder}:/machine:ro"]
    command += [word for wheels in network.index.folders for word in ("--volume", f"{wheels}:{wheels}:ro")]
    for label, value in owner.this_process().labels(name).items():
        command += ["--label", f"{label}={value}"]
    try:
        sources = folder / "apt-sources"
        base = ["sh", str(pins.ROOT / "docker" / "base.sh"), tag, *([str(sources)] if sources.exists() else [])]
        if subprocess.run(base, env={**os.environ, "DOCKER": docker}, stdout=subprocess.DEVNULL).returncode != 0:
            raise UserError("the Debian could not be created: see docker/base.sh's output above.")
        _run_or_raise([*command, tag, "sleep", "infinity"], "this machine's engine can't start the Debian")
        print(f"fresh: {name} runs Debian; installing {', '.join(PACKAGES)}", flush=True)
        environment = [f"{key}={value}" for key, value in settings(network, os.environ).items()]
        _run_or_raise(
            [docker, "exec", name, "env", "-i", *environment, "sh", "-c", _SET_UP], "the Debian can't be set up"
        )
        yield name
    finally:
        # A second Ctrl-C must not interrupt the removal of gigabytes.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        subprocess.run([docker, "rm", "--force", "--volumes", name], capture_output=True)
        subprocess.run([docker, "rmi", tag], capture_output=True)


def _run_or_raise(command: Sequence[str], what: str) -> None:
    process = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if process.returncode != 0:
        raise UserError(f"{what}: {http.in_few_words(process.stderr)}.")


def run(docker: str, name: str, command: str, variables: Mapping[str, str], log: TextIO) -> Outcome:
    """Run `make COMMAND` in the clone; print and log each line without passwords."""
    environment = [f"{key}={value}" for key, value in variables.items()]
    words = [docker, "exec", "--workdir", HOME, name, "env", "-i", *environment, "make", command]
    log.write(f"$ make {command}\n")
    began = time.monotonic()
    tail: list[str] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as made:
        assert made.stdout is not None
        for line in made.stdout:
            line = http.without_password(line)
            print(line, end="", flush=True)
            log.write(line)
            log.flush()
            tail = [*tail, line.rstrip()][-TAIL:]
    return Outcome(f"make {command}", made.returncode, time.monotonic() - began, tuple(tail))


def make_page(commit: str, versions: str, outcomes: Sequence[Outcome]) -> str:
    """The page of results."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    lines = [
        f"# README's two commands on a bare Debian 12, {time.strftime('%Y-%m-%d')}",
        "",
        f"berth at {commit}, {os.cpu_count()} cores, {memory:.0f} GB; {versions.strip()}. Made by mmdebstrap, with",
        f"only `apt-get install {shlex.join(PACKAGES)}`, and its own engine: `make fresh`.",
        "",
        "| command | ended with | seconds |",
        "|---|---|---|",
        *(f"| `{each.command}` | {each.code} | {each.seconds:.0f} |" for each in outcomes),
    ]
    for each in outcomes:
        lines += ["", f"The last lines of `{each.command}`:", "", *(f"    {line}".rstrip() for line in each.tail)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    program.end_with(main)
