"""The proof of a profile: its environment, its script and its errors."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images.locks.locks import LOCKS, wheel_locks
from berth.images.pins import pins_file
from berth.images.profiles import proof, proof_script
from berth.images.profiles.proof import NEEDED, SCRIPT, Proof, Prover

PINS = pins_file.load()
HASH = f" \\\n    --hash=sha256:{'a' * 64}\n"


@pytest.mark.nightly
def test_proof_script_trains_saves_and_resumes(tmp_path: Path) -> None:
    """With transformers 4 the script runs when `profile add` proves such a set: see
    bench/results/2026-11-24-profile-add.md."""
    command = [sys.executable, "-P", str(SCRIPT), str(tmp_path), "all", "transformers", "datasets"]
    result = subprocess.run(command, capture_output=True, text=True, env=proof.script_environment(tmp_path, {}))
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line.startswith("step: ")] == [
        *(f"step: import {module}" for module in ("transformers", "datasets")),
        *(f"step: load_dataset of a {kind} file" for kind in ("CSV", "JSON")),
        "step: a tokenizer and a BERT of random weights",
        *(f"step: {name}" for name in ("two steps of Trainer", "an evaluation", "save", "load")),
        "step: resume from a checkpoint",
        "step: the end",
    ]


def test_proof_imports_no_tests_and_no_private_modules() -> None:
    modules = ["yaml", "_yaml", "tests", "attr", "docs", "pyarrow-stubs"]
    assert list(proof_script.wanted_modules(modules)) == ["attr", "yaml"]


def test_proof_imports_each_module_of_a_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported: list[str] = []
    owners = {"yaml": ["PyYAML"], "google": ["protobuf", "googleapis.common_protos"], "torch": ["torch"]}
    monkeypatch.setattr(proof_script, "packages_distributions", lambda: owners)
    monkeypatch.setattr(proof_script.importlib, "import_module", imported.append)
    proof_script.import_all(["pyyaml", "googleapis-common-protos"])
    assert imported == ["yaml", "google"]
    assert capsys.readouterr().out == "step: import yaml\nstep: import google\n"


def test_failure_names_step_and_last_line_of_traceback(tmp_path: Path) -> None:
    script = "print('step: import peft')\nraise ImportError('no name x\\nin y')"
    with pytest.raises(
        UserError, match=r"^The proof of own failed at `import peft` \(ImportError: no name x\): choose other versions"
    ):
        proof.run_script([sys.executable, "-c", script], "own", tmp_path, {})
    with pytest.raises(UserError, match=r"failed at `its start` \(it was killed by signal 6\)"):
        proof.run_script([sys.executable, "-c", "import os; os.abort()"], "own", tmp_path, {})


def test_run_script_returns_variable_that_avoids_failure_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"raise ValueError({NEEDED[0].pattern!r})"]
    assert proof.run_script(command, "own", tmp_path, {}) == NEEDED[0]
    with pytest.raises(UserError, match=r"ValueError: Weights only load failed"):
        proof.run_script(command, "own", tmp_path, {NEEDED[0].variable: "0"})


@pytest.mark.slow
def test_proof_timeout_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_TIMEOUT_S", 1)
    with pytest.raises(UserError, match="The proof of own did not end within 0 minutes"):
        proof.run_script([sys.executable, "-c", "import time; time.sleep(9)"], "own", tmp_path, {})


def test_proof_lock_uses_upper_layer_and_skips_source_only_packages() -> None:
    """If two layers lock a package, the upper layer's version is used. Packages in [source_only] are skipped."""
    texts = [f"torch==1{HASH}fsspec==2{HASH}", f"fsspec==1{HASH}"]
    assert proof.proof_lock(texts, {}) == {"torch": f"torch==1{HASH}", "fsspec": f"fsspec==1{HASH}"}
    hf4 = PINS.profile("cpu-hf4")
    locked = proof.proof_lock([(LOCKS / lock).read_text() for lock in wheel_locks(hf4, "train")], {})
    assert proof.to_import(hf4, locked)[0] == "torch"
    assert {"evaluate", "safetensors", "mpi4py"} <= set(proof.to_import(hf4, locked))
    assert "fsspec==2023.9.2" in locked["fsspec"]
    assert not set(PINS.source_only["train"]) & locked.keys()


def test_cuda_profile_is_proved_with_cpu_torch_and_reported() -> None:
    cu124 = PINS.profile("cu124")
    names = ("torch", "torchvision", "triton", "nvidia-nccl-cu12", "cuda-toolkit", "datasets")
    found = proof.proof_lock([f"{name}==1{HASH}" for name in names], {"torch": "torch==1+cpu"})
    assert found == {"datasets": f"datasets==1{HASH}", "torch": "torch==1+cpu"}
    assert proof.unproved(PINS.profile("cpu"), Proof.cpu) == []
    assert proof.unproved(cu124, Proof.cpu)[0].startswith(
        "Proved with the CPU build of torch: CUDA's wheels and torchv"
    )
    assert "gpu-check" in proof.unproved(cu124, Proof.whole)[0]


def test_proof_none_is_reported() -> None:
    prover, profile = Prover(LOCKS, [], Proof.none), PINS.profile("cu124")
    found = prover.prove(profile, prover.prepare(PINS, profile))
    assert found.unproved == ["cu124 was not run: it is not proved that its versions work together."]


def test_failed_environment_is_reported(tmp_path: Path) -> None:
    profile = replace(PINS.profile("cpu"), python="3.99")
    with pytest.raises(UserError, match=r"^The environment for the proof of cpu could not be made: .*3\.99"):
        Prover(LOCKS, [tmp_path], Proof.cpu)._environment(tmp_path, profile, "")


def test_step_texts_name_reason_for_repeated_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = iter([NEEDED[0], None, None])
    monkeypatch.setattr(proof, "run_script", lambda *_: next(wanted))
    monkeypatch.setattr(Prover, "_environment", lambda *_: Path(sys.executable))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    steps: list[str] = []
    prover, profile = Prover(LOCKS, [], Proof.cpu, steps.append), PINS.profile("cpu")
    assert prover.prove(profile, prover.prepare(PINS, profile)).needed == [NEEDED[0]]
    assert [re.sub("[0-9]+ packages", "N packages", each) for each in steps] == [
        "cpu, train: making an environment of its N packages for the proof",
        "cpu, train: proof: imports all packages, reads files, trains two steps, saves and resumes",
        "cpu, train: again with TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1, without which it failed: proof: imports all "
        "packages, reads files, trains two steps, saves and resumes",
        "cpu, serve: making an environment of its N packages for the proof",
        "cpu, serve: proof: imports all packages",
    ]
