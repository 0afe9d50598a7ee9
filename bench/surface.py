"""Everything that users and programs can rely on, as one text, to compare before and after a refactoring.

Usage: python -m bench.surface [--images] > before.txt

Commands with options and defaults, the output and exit codes of wrong commands, environment variables, labels, keys of
JSON, and the sentences in the source. With --images also the built images' settings, their commands on PATH, and the
failure reasons of jobs that can't run. Module paths and internal names are not included, so moves and renames do not
change the text.
"""

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from bench import program

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("build.py", "berth", "ecr", "serve", "train")

WRONG = (
    [],
    ["biuld"],
    ["build", "nothing"],
    ["build", "--profile", "cu999", "--dry-run"],
    ["build", "--without", "cuda", "--dry-run"],
    ["build", "--base-image", "", "--dry-run"],
    ["push", "--no-such-option"],
    ["push", "train", "--tag", "a b", "--registry", "r.example.com/x"],
    ["push", "train", "--kms-key", "x", "--registry", "r.example.com/x"],
    ["promote"],
    ["promote", "a", "b c"],
    ["uri", "everything"],
    ["run", "serve"],
    ["run", "train"],
    ["run", "train", "--data", "/no/such/folder"],
    ["run", "train", "--hosts", "0", "--data", "sample"],
    ["run", "serve", "--model", "/no/such/model.tar.gz"],
    ["run", "serve", "--model", "sample/README.md"],
    ["demo", "--output", "/proc/nothing"],
    ["diff", "a"],
    ["pins", "--profile", "cu999"],
    ["pins", "--fetch", "nothing-1.0"],
    ["size", "--image", "no-such-image:1"],
)
"""Command lines that fail before anything is built, moved or started."""

JOBS: tuple[tuple[str, dict[str, str]], ...] = (
    ("no data", {}),
    ("unknown hyperparameter", {"epochs": "1", "lerning_rate": "3e-5"}),
    ("invalid values", {"learning_rate": "fast", "per_device_train_batch_size": "-1"}),
    ("missing program", {"sagemaker_program": "nothing.py"}),
    ("invalid distribution", {"sagemaker_mpi_enabled": "maybe"}),
)


def commands() -> Iterator[str]:
    """Every command with its parameters: names, type, default and variable."""
    spec = importlib.util.spec_from_file_location("build_py", ROOT / "build.py")
    assert spec
    assert spec.loader
    build_py: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_py)
    line = build_py.CommandLine(name="build.py")
    context = typer.Context(line)

    def describe(name: str, command: Any) -> Iterator[str]:
        yield f"{name}: {command.help}"
        for each in command.params:
            names = "/".join([*each.opts, *each.secondary_opts])
            shape = getattr(each.type_descriptor.annotation, "__members__", each.type_descriptor.annotation)
            kind = (name, names, list(shape) if isinstance(shape, Mapping) else shape)
            yield "  ".join(map(str, (*kind, each.metavar, repr(each.default), each.envvar, each.multiple, each.help)))
        for sub in getattr(command, "commands", {}):
            yield from describe(f"{name} {sub}", command.commands[sub])

    for name in line.list_commands(context):
        yield from describe(name, line.get_command(context, name))


def screens() -> Iterator[str]:
    """The output and exit codes of wrong command lines."""
    for arguments in WRONG:
        process = subprocess.run(
            [sys.executable, "build.py", *arguments],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "COLUMNS": "200", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        for line in (process.stdout + process.stderr).replace(str(ROOT), "ROOT").splitlines():
            yield f"{' '.join(arguments)} -> {process.returncode}: {line.rstrip()}"


def _trees() -> Iterator[ast.AST]:
    for source in SOURCES:
        path = ROOT / source
        for file in sorted([path] if path.is_file() else path.rglob("*.py")):
            yield ast.parse(file.read_text())


def _docstrings(tree: ast.AST) -> set[int]:
    """The ids of docstrings, including those of constants."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def texts() -> Iterator[str]:
    """Every string of the source except docstrings; fields of f-strings become {}."""
    for tree in _trees():
        skipped = _docstrings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for part in ast.walk(node)} - {id(node)}
                yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                yield node.value


def keys() -> Iterator[str]:
    """The string keys of dictionaries, from which JSON documents and labels are made."""
    for tree in _trees():
        for node in ast.walk(tree):
            for key in node.keys if isinstance(node, ast.Dict) else []:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value


def _docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False).stdout


def images() -> Iterator[str]:
    """The images' settings, and the paths of their main commands."""
    for image in ("berth-train:cpu", "berth-serve:cpu"):
        (inspected,) = json.loads(_docker("image", "inspect", image))
        config = inspected["Config"]
        for key in ("Entrypoint", "Cmd", "Env", "ExposedPorts", "StopSignal", "User", "WorkingDir"):
            yield f"{image} {key} {config.get(key)}"
        for label, value in sorted(config["Labels"].items()):
            yield f"{image} {label} {'' if 'revision' in label or 'version' in label else value}"
        for path in _docker("run", "--rm", image, "sh", "-c", "which train serve mpirun sshd python3 pip").split():
            yield f"{image} {path}"


def jobs() -> Iterator[str]:
    """Exit code and failure file of jobs that can't run."""
    for name, hyperparameters in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "input/config"
            config.mkdir(parents=True)
            (config / "hyperparameters.json").write_text(json.dumps(hyperparameters))
            hosts = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}
            (config / "resourceconfig.json").write_text(json.dumps(hosts))
            (config / "inputdataconfig.json").write_text("{}")
            process = subprocess.run(
                ["docker", "run", "--rm", "-v", f"{folder}:/opt/ml", "berth-train:cpu"],
                capture_output=True,
                check=False,
            )
            failure = Path(folder) / "output/failure"
            lines = failure.read_text().splitlines() if failure.exists() else ["no failure file"]
            yield f"{name} -> {process.returncode}: {lines[0]}"


def _section(name: str, lines: Iterable[str], *, ordered: bool = False) -> None:
    print(f"\n== {name}")
    for line in lines if ordered else sorted(set(lines)):
        print(line.replace("\n", "\\n"))


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("surface", __doc__)
    parser.add_argument("--images", action="store_true", help="include the built images and their jobs")
    options = parser.parse_args(words)
    everything = list(texts())
    variables = re.compile(r"\b(?:BERTH|SM|SAGEMAKER|NCCL|OMPI?|FI|MKL|HF|AWS|DOCKER)_[A-Z0-9_]+")
    _section("commands", commands(), ordered=True)
    _section("wrong command lines", screens(), ordered=True)
    _section("environment variables", (name for text in everything for name in variables.findall(text)))
    _section("keys", keys())
    _section("sentences", (text for text in everything if len(text.split()) > 2))
    if options.images:
        _section("images", images(), ordered=True)
        _section("jobs that can't run", jobs(), ordered=True)
    return 0


if __name__ == "__main__":
    program.end_with(main)
