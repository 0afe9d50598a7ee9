"""build.py: its commands, help, and errors in the command line."""

import os
import re
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest
import typer

from berth.images.pins import pins, pins_file


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("promote", "berth: error: FROM is missing; see `python build.py promote --help`."),
        ("promote a", "berth: error: TO is missing; see `python build.py promote --help`."),
        ("diff a", "berth: error: AFTER is missing; see `python build.py diff --help`."),
        ("run train", "berth: error: --data is missing: pass SQuAD data, or --code with a program of your own."),
        (
            "push nope",
            "berth: error: IMAGE: 'nope' is not one of 'train', 'serve', 'all'; see `python build.py push --help`.",
        ),
        (
            "run train --hosts 1e2",
            "berth: error: --hosts: '1e2' is not a whole number; see `python build.py run train --help`.",
        ),
        (
            "run serve --port x",
            "berth: error: --port: 'x' is not a whole number; see `python build.py run serve --help`.",
        ),
        ("run serve", "berth: error: --model is missing; see `python build.py run serve --help`."),
        (
            "run serve a.tar.gz",
            "berth: error: --model is missing; see `python build.py run serve --help`.",
        ),
        (
            "run serve --model a b",
            "berth: error: 'b' is one word too many; see `python build.py run serve --help`.",
        ),
        (
            "run train --hosts",
            "berth: error: Option '--hosts' requires an argument; see `python build.py --help`.",
        ),
        (
            "run train --cod src",
            "berth: error: unknown option --cod (did you mean --code?); see `python build.py run train --help`.",
        ),
        (
            "run train --epochs 3",
            "berth: error: unknown option --epochs (pass a hyperparameter with `-p epochs=VALUE`); see `python "
            "build.py run train --help`.",
        ),
        (
            "run train -p epochs 3",
            "berth: error: '3' is one word too many: a hyperparameter is one word, `-p name=value`; see `python "
            "build.py run train --help`.",
        ),
        (
            "profile add mine --transfomers 4.46.3",
            "berth: error: unknown option --transfomers (did you mean --transformers?); see `python build.py profile "
            "add --help`.",
        ),
        (
            "train",
            "berth: error: No such command 'train' (did you mean 'run train'?); see `python build.py --help`.",
        ),
        (
            "pusch",
            "berth: error: No such command 'pusch' (did you mean 'push'?); see `python build.py --help`.",
        ),
    ],
)
def test_usage_errors_use_the_names_of_the_help(
    words: str, error: str, command_line: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(words.split()) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.strip()) == ("", error)


def test_run_serve_checks_variables(command_line: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["run", "serve", "--model", "nowhere", "-e", "1A=secret", "-e", "NOT_THERE"]) == 1
    errors = " ".join(capsys.readouterr().err.split())
    assert "-e '1A' is not a valid name of a variable" in errors
    assert "-e NOT_THERE: there is no variable of that name here" in errors
    assert "secret" not in errors


def test_folders_lists_all_command_modules_and_names_are_unique(command_line: ModuleType) -> None:
    package = pins.ROOT / "berth"
    found = [path.parent.relative_to(package) for each in package.iterdir() for path in each.rglob("commands.py")]
    assert sorted(command_line.FOLDERS) == sorted(".".join(folder.parts) for folder in found)
    names = [
        name
        for folder in command_line.FOLDERS
        for name in typer.main.get_group(import_module(f"berth.{folder}.commands").app).commands
    ]
    assert sorted(names) == sorted(set(names))
    line = command_line.CommandLine(name="build.py")
    assert line.list_commands(typer.Context(line)) == names


def test_help_shows_no_python_types(command_line: ModuleType) -> None:
    for folder in command_line.FOLDERS:
        commands = [typer.main.get_group(import_module(f"berth.{folder}.commands").app)]
        for command in commands:
            commands += getattr(command, "commands", {}).values()
            text = command.get_help(typer.Context(command))
            assert "--help" in text
            assert not re.search(r"^ +-.*<(?:str|int|float|list)\b", text, re.MULTILINE), text


def test_command_list_shows_whole_sentences(
    command_line: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert command_line.main(["--help"]) == 0
    rows = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert len(rows) > 10
    assert [row for row in rows if not row.endswith(".") or row.endswith("...")] == []


def test_build_does_not_import_boto3() -> None:
    code = "import runpy, sys\nsys.argv = ['build.py', 'build', '--help']\n"
    code += "try:\n    runpy.run_path('build.py', run_name='__main__')\n"
    code += "finally:\n    print(sorted({'boto3', 'packageurl'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=pins.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.mark.slow
@pytest.mark.parametrize("buffered", [True, False])
def test_full_disk_behind_a_pipe_is_one_error_line(buffered: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        command = [sys.executable, *([] if buffered else ["-u"]), "build.py", "build", "serve", "--dry-run"]
        done = subprocess.run(command, cwd=pins.ROOT, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 1
    assert "Exception ignored" not in done.stderr
    error = "berth: error: No space left on device for the output: free some, then run the command again."
    assert done.stderr.splitlines()[-1] == error


def test_ctrl_c_prints_one_sentence(
    command_line: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pins_file, "load", stop)
    for words in (["pins"], ["profile", "list"]):
        assert command_line.main(words) == 130
        assert capsys.readouterr().err == "interrupted; what this command started is removed\n"
