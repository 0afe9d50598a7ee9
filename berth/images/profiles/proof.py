"""Proves a profile before it is added to docker/pins.toml: runs `proof_script` in a temporary environment made from its
locks. Reports what can't be proved without a GPU.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from berth.common.errors import UserError
from berth.images.locks.lock_text import entries
from berth.images.locks.locks import LockRequest, resolve, wheel_locks
from berth.images.locks.uv import failure_text, find_uv, last_line, uv_environment
from berth.images.pins.pins import DEFAULT_PROFILE, Pins, Profile
from berth.images.scratch import PROOFS, scratch_folder

SCRIPT = Path(__file__).with_name("proof_script.py")
_TIMEOUT_S = 1800
Step = Callable[[str], None]


@dataclass(frozen=True)
class NeededVariable:
    """A variable that avoids failures whose traceback contains `pattern`, and a note on it for the user."""

    pattern: str
    variable: str
    value: str
    note: str


NEEDED = (
    NeededVariable(
        "Weights only load failed",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
        "1",
        "its transformers resumes from files that this torch otherwise refuses. So loading a checkpoint may run code: "
        "load only checkpoints that you trust",
    ),
    NeededVariable(
        "Descriptors cannot be created directly",
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
        "python",
        "one of its packages was generated for an older protobuf, and needs the Python implementation of protobuf",
    ),
)


@dataclass(frozen=True)
class Proved:
    """The result of a proof: sentences on what was not proved, and the variables that it needed."""

    unproved: list[str]
    needed: list[NeededVariable]


ProofTarget = tuple[Profile, Mapping[str, str]]
"""The profile that is proved: the added one, or its copy with torch's CPU build. And, for a copy, the lock entries that
replace those of torch and CUDA, by name.
"""


class Proof(StrEnum):
    """How a profile is proved: with the CPU build of torch, with its own wheels (with CUDA some gigabytes), or not."""

    cpu = "cpu"
    whole = "whole"
    none = "none"


@dataclass(frozen=True)
class Prover:
    """Proves profiles. locks: their folder; folders: pip's folders of wheels; step: called with each step."""

    locks: Path
    folders: Sequence[Path]
    proof: Proof
    step: Step = lambda done: None

    def prepare(self, pins: Pins, profile: Profile) -> ProofTarget:
        """Finds what the proof needs besides the locks. UserError if this machine can't prove the profile, which is
        known before the locks are made.
        """
        if self.proof is Proof.none:
            return profile, {}
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            raise UserError(
                f"The proof runs on linux/amd64 only, and this machine is {sys.platform}/{platform.machine()}: run the "
                "command on such a machine, or add --proof none."
            )
        if not profile.cuda or self.proof is Proof.whole:
            return profile, {}
        cpu_profile = on_cpu(pins, profile)
        self.step(f"{profile.name}: looking for torch {cpu_profile.torch}, which replaces CUDA's in the proof")
        return cpu_profile, cpu_torch_entry(cpu_profile, self)

    def prove(self, profile: Profile, target: ProofTarget) -> Proved:
        """Proves each image of a profile; UserError for a failure that no known variable avoids."""
        if self.proof is Proof.none:
            return Proved([f"{profile.name} was not run: it is not proved that its versions work together."], [])
        needed: list[NeededVariable] = []
        for image in profile.images:
            self._prove_image(*target, image, needed)
        return Proved(unproved(profile, self.proof), needed)

    def _prove_image(
        self, profile: Profile, replaced: Mapping[str, str], image: str, needed: list[NeededVariable]
    ) -> None:
        """Runs the script until it succeeds; adds the variables that it needs to `needed`."""
        missing_variable = None
        texts = [path.read_text() for lock in wheel_locks(profile, image) if (path := self.locks / lock).exists()]
        locked = proof_lock(texts, replaced)
        with scratch_folder(PROOFS, stopping="stopping; removing the environment …") as folder:
            self.step(f"{profile.name}, {image}: making an environment of its {len(locked)} packages for the proof")
            python = self._environment(folder, profile, "".join(locked.values()))
            part = "all" if image == "train" else "imports"
            while True:
                self.step(f"{profile.name}, {image}: {step_text(image, missing_variable)}")
                home = folder / f"run-{len(needed)}"
                home.mkdir()
                command = [str(python), "-P", str(SCRIPT), str(home), part, *to_import(profile, locked)]
                variables = {each.variable: each.value for each in needed} | dict(profile.software.environment)
                missing_variable = run_script(command, profile.name, home, variables)
                if missing_variable is None:
                    return
                needed.append(missing_variable)

    def _environment(self, home: Path, profile: Profile, lock: str) -> Path:
        """Makes an environment of these packages; returns its Python."""
        uv, python = find_uv(), home / "venv" / "bin" / "python"
        (home / "lock.txt").write_text(lock)
        links = [word for folder in self.folders for word in ("--find-links", str(folder))]
        if profile.torch_index and not any(any(each.glob(f"torch-{profile.torch}-*.whl")) for each in self.folders):
            links += ["--index", profile.torch_index, "--index-strategy", "unsafe-best-match"]
        install = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(home / "lock.txt"), *links]
        for command in (
            [uv, "venv", "--quiet", "--python", profile.python, str(home / "venv")],
            [uv, "pip", "install", "--quiet", "--python", str(python), *install],
        ):
            result = subprocess.run(command, capture_output=True, text=True, cwd=home, env=uv_environment(os.environ))
            if result.returncode != 0:
                raise UserError(
                    f"The environment for the proof of {profile.name} could not be made: {failure_text(result.stderr)} "
                    "Run the command again when that is fixed, or add --proof none."
                )
        return python


def step_text(image: str, missing_variable: NeededVariable | None) -> str:
    """Describes a run of the script, and why it is repeated: the last one failed without the variable `wanted`."""
    imports = "proof: imports all packages"
    run = f"{imports}, reads files, trains two steps, saves and resumes" if image == "train" else imports
    return (
        f"again with {missing_variable.variable}={missing_variable.value}, without which it failed: {run}"
        if missing_variable
        else run
    )


def proof_lock(texts: Sequence[str], replaced: Mapping[str, str]) -> dict[str, str]:
    """The entries of an image's locks by package; the higher layer's if two have it. `replaced` replaces torch and all
    CUDA packages.
    """
    found = {str(canonicalize_name(name)): entry for text in texts for name, _, entry in entries(text)}
    if not replaced:
        return found
    cuda = ("nvidia-", "cuda-", "triton", "torchvision")
    return {name: entry for name, entry in found.items() if not name.startswith(cuda)} | dict(replaced)


def to_import(profile: Profile, locked: Mapping[str, str]) -> list[str]:
    """The packages whose modules the proof imports: those in docker/pins.toml, if the image has them."""
    own = [Requirement(each).name for each in profile.software.requirements]
    return [name for name in dict.fromkeys(map(canonicalize_name, (*profile.packages, *own))) if name in locked]


def on_cpu(pins: Pins, profile: Profile) -> Profile:
    """The profile with the CPU build of its torch."""
    version = f"{profile.torch.partition('+')[0]}+cpu"
    packages = {name: each for name, each in profile.packages.items() if name != "torchvision"} | {"torch": version}
    return replace(profile, torch_index=pins.profile(DEFAULT_PROFILE).torch_index, packages=packages)


def cpu_torch_entry(profile: Profile, prover: Prover) -> dict[str, str]:
    """The lock entry of the CPU build of torch, by name; UserError if it is not available."""
    request = LockRequest("proof.txt", (f"torch=={profile.torch}",))
    try:
        text = resolve(request, profile, prover.folders, prover.locks)
    except UserError as error:
        raise UserError(
            f"{profile.name} can't be proved with the CPU build of its torch, which is not available here: {error} Add "
            "--proof whole, which installs its own wheels, some gigabytes, or --proof none."
        ) from None
    return {name: entry for name, _, entry in entries(text) if name == "torch"}


def run_script(command: Sequence[str], name: str, home: Path, variables: Mapping[str, str]) -> NeededVariable | None:
    """Runs the proof's script with these variables; returns the variable that avoids its failure, None on success.

    UserError names the failed step and the last line of its traceback if no such variable is known.
    """
    environment = script_environment(home, variables)
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, cwd=home, timeout=_TIMEOUT_S, env=environment, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"The proof of {name} did not end within {_TIMEOUT_S // 60} minutes: choose other versions, or add "
            "--proof none."
        ) from None
    if result.returncode == 0:
        return None
    known = next((each for each in NEEDED if each.pattern in result.stderr), None)
    if known and known.variable not in variables:
        return known
    steps = [line.removeprefix("step: ") for line in result.stdout.splitlines() if line.startswith("step: ")]
    reason = last_error(result.stderr) if result.returncode > 0 else f"it was killed by signal {-result.returncode}"
    raise UserError(
        f"The proof of {name} failed at `{steps[-1] if steps else 'its start'}` ({reason}): choose other versions, "
        "set a --constraint or an --env that helps, or add --proof none."
    )


def last_error(printed: str) -> str:
    """The last line of a traceback that names an error; else the last printed line."""
    named = re.findall(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*$", printed, re.MULTILINE)
    return (" ".join(named[-1].split()) if named else last_line(printed))[:300].rstrip(". ")


def script_environment(home: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of the proof: the set's variables, and of this machine's only PATH."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "HF_HOME": str(home / "hub"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
        "LANG": "C.UTF-8",
        **variables,
    }


def unproved(profile: Profile, proof: Proof) -> list[str]:
    """What the proof of a profile with CUDA did not cover."""
    if not profile.cuda:
        return []
    if proof is Proof.whole:
        return [f"Proved with {profile.name}'s own wheels, on the CPU; `build.py gpu-check` tests it on a GPU."]
    left = " and torchvision" if "torchvision" in profile.packages else ""
    return [
        f"Proved with the CPU build of torch: CUDA's wheels{left} were locked but not run; the build runs them, and "
        "`build.py gpu-check` tests them on a GPU."
    ]
