"""Requirements that need git or a compiler: pip runs without these tools, and recorded output of pip."""

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from berth.runtime.missing_tools import archive_line, missing_tool_sentence
from berth.runtime.requirements import RequirementsError, install

GITHUB = "https://github.com/huggingface/peft/archive"


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide git and compilers, and let pip build without downloading setuptools."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def failure(folder: Path, text: str) -> str:
    (folder / "requirements.txt").write_text(text)
    with pytest.raises(RequirementsError) as caught:
        install(folder, sys.executable, lambda line: None)
    return str(caught.value)


@pytest.mark.usefixtures("no_tools")
def test_git_requirement_becomes_archive(tmp_path: Path) -> None:
    text = (
        "# what we need\npeft @ git+https://github.com/huggingface/peft@v0.17.1\n"
        "git+ssh://git@github.com/us/rows.git@main#egg=rows\n"
    )
    assert failure(tmp_path, text) == (
        "requirements.txt could not be installed: line 2 and line 3 need git, which this image does not have; write "
        f"peft @ {GITHUB}/v0.17.1.zip in line 2 and write rows @ "
        "https://github.com/us/rows/archive/main.zip in line 3."
    )


def source(folder: Path, name: str) -> str:
    """Write the source archive of a package with a C module; returns its name."""
    setup = f"from setuptools import Extension, setup\nsetup(name={name!r}, version='1.0', "
    setup += f"ext_modules=[Extension({name!r}, ['it.c'])])\n"
    code = '#include <Python.h>\nstatic struct PyModuleDef it = {PyModuleDef_HEAD_INIT, "it", 0, -1, 0};\n'
    code += f"PyMODINIT_FUNC PyInit_{name}(void) {{ return PyModule_Create(&it); }}\n"
    archive = folder / f"{name}-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for inner, text in (("setup.py", setup), ("it.c", code)):
            member = tarfile.TarInfo(f"{name}-1.0/{inner}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive.name


@pytest.mark.slow
@pytest.mark.usefixtures("no_tools")
def test_compiled_package_suggests_pip_wheel(tmp_path: Path) -> None:
    sentence = failure(tmp_path, f"\n./{source(tmp_path, 'tinyext')}\n")
    assert sentence == (
        "requirements.txt could not be installed: line 2 (./tinyext-1.0.tar.gz) has no wheel for this image, and "
        "building one needs gcc, which this image does not have; run `pip wheel --no-deps "
        f'"./tinyext-1.0.tar.gz"` on a machine with Linux, Python {sys.version[:4]} and gcc, and put the wheel next to '
        "requirements.txt, and its path (./NAME.whl) in place of the line."
    )


LINE = "Collecting {} (from -r requirements.txt (line {}))"


@pytest.mark.parametrize(
    ("output", "text", "fact"),
    [
        (
            [
                LINE.format("tokenizers==0.13.0", 3),
                "      error: can't find Rust compiler",
                "  ERROR: Failed building wheel for tokenizers",
            ],
            "\n\ntokenizers==0.13.0",
            "line 3 (tokenizers==0.13.0) has no wheel for this image, and building one needs rustc,",
        ),
        (
            [
                LINE.format("sentencepiece==0.1.95", 1),
                "      /bin/sh: 1: pkg-config: not found",
                "      ./build_bundled.sh: 8: git: not found",
                "      ./build_bundled.sh: 15: cmake: not found",
                "      env: 'pkg-config': No such file or directory",
                "  ERROR: Failed building wheel for sentencepiece",
            ],
            "sentencepiece==0.1.95",
            "line 1 (sentencepiece==0.1.95) has no wheel for this image, and building one needs pkg-config and git",
        ),
        (
            [
                LINE.format("psycopg2", 1),
                "      Error: pg_config executable not found.",
                "ERROR: Failed to build 'psycopg2' when getting requirements to build wheel",
            ],
            "psycopg2",
            "write psycopg2-binary instead",
        ),
        (
            [
                LINE.format("rows", 2),
                "Collecting fast-rows>=1 (from rows->-r requirements.txt (line 2))",
                "      CMake Error: No CMAKE_CXX_COMPILER could be found.",
                "  ERROR: Failed building wheel for fast_rows",
            ],
            "numpy\nrows==1\n",
            "fast_rows, which line 2 (rows==1) needs, has no wheel for this image, and building one needs g++,",
        ),
    ],
)
def test_error_names_tool_and_line(output: list[str], text: str, fact: str) -> None:
    assert fact in missing_tool_sentence(output, "requirements.txt", text)


def test_other_failures_have_no_tool_sentence() -> None:
    output = ["ERROR: No matching distribution found for nothing", "      train.py: not found"]
    assert missing_tool_sentence(output, "requirements.txt", "nothing") == ""


@pytest.mark.parametrize(
    ("line", "archive"),
    [
        ("peft @ git+https://github.com/huggingface/peft@v0.17.1", f"peft @ {GITHUB}/v0.17.1.zip"),
        ("peft@git+https://github.com/huggingface/peft.git@main", f"peft @ {GITHUB}/main.zip"),
        ("git+https://github.com/huggingface/peft", f"peft @ {GITHUB}/HEAD.zip"),
        ("git+https://github.com/huggingface/peft/@0a1b2c3d", f"peft @ {GITHUB}/0a1b2c3d.zip"),
        ("git+https://github.com/huggingface/peft@refs/pull/12/head", f"peft @ {GITHUB}/refs/pull/12/head.zip"),
        (
            "-e git+ssh://git@github.com/huggingface/peft.git@feature/x#egg=my-peft",
            f"my-peft @ {GITHUB}/feature/x.zip",
        ),
        ("git+https://token@github.com/huggingface/peft@v1.0  # ours", f"peft @ {GITHUB}/v1.0.zip"),
        (
            "git+https://github.com/huggingface/peft@v1.0#egg=peft&subdirectory=python ; python_version > '3'",
            f"peft @ {GITHUB}/v1.0.zip#subdirectory=python ; python_version > '3'",
        ),
        ("git+https://git.example.com/a/rows@v1", ""),
        ("peft==0.17.1", ""),
    ],
)
def test_archive_line(line: str, archive: str) -> None:
    assert archive_line(line) == archive


@pytest.mark.slow
def test_pip_accepts_archive_lines(tmp_path: Path) -> None:
    """GitHub's archives have one folder that contains all files."""
    lines = []
    for name, inner, fragment in (("rows", "", ""), ("cells", "python/", "#egg=cells&subdirectory=python")):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            setup = f"from setuptools import setup\nsetup(name='{name}', version='1.0', py_modules=['{name}'])"
            archive.writestr(f"{name}-1.0/{inner}setup.py", setup)
            archive.writestr(f"{name}-1.0/{inner}{name}.py", "")
        line = archive_line(f"git+https://github.com/us/{name}@v1.0{fragment}")
        lines.append(line.replace(f"https://github.com/us/{name}/archive/v1.0", (tmp_path / name).as_uri()))
    (tmp_path / "requirements.txt").write_text("\n".join(lines))
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-build-isolation",
        "--target",
        "installed",
        "-r",
        "requirements.txt",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert {"rows.py", "cells.py"} <= {path.name for path in (tmp_path / "installed").iterdir()}
