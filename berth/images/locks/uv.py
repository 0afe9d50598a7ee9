"""Finds and runs uv, which resolves versions and makes environments, with pip's settings as uv's variables.

`python -m berth.images.locks.uv pip install …` does the same, for the Makefile.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from berth.common.errors import UserError
from berth.common.http import without_password
from berth.images.network.build_network import gather
from berth.images.pins.pins import Profile


def find_uv() -> str:
    """The path of uv; UserError if it is not installed."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise UserError("uv, which makes the locks, is not installed: run `make setup`, which installs it.")
    return uv


def uv_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with uv's variables for pip's settings, which uv does not read; variables that are set are kept."""
    network = gather(environ)
    index = network.index
    settings = {
        "UV_DEFAULT_INDEX": index.url or "",
        "UV_INDEX": " ".join(index.extra),
        "UV_INSECURE_HOST": " ".join(index.trusted),
        "ALL_PROXY": index.proxy,  # uv prefers HTTPS_PROXY
        "SSL_CERT_FILE": str(network.ca or ""),
        "UV_HTTP_TIMEOUT": "120",  # the same as in docker/layers/common.sh
        "UV_NO_WRAP": "1",  # one line per sentence, whatever COLUMNS is
    }
    old = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
    mine = {
        name: value
        for name, value in settings.items()
        if value and not environ.get(name) and not environ.get(old.get(name, name))
    }
    return {**environ, **mine}


def failure_text(printed: str) -> str:
    """uv's own explanation of a failure, on one line, without passwords."""
    text = without_password(" ".join(printed.split())).replace(" cause: ", ": ").removeprefix("error: ")
    text = text.removeprefix("No solution found when resolving dependencies: ")
    text = re.sub(r" Consider using `exclude-newer-package`[^.]*\.", "", text).rstrip(".")
    if "Failed to fetch" in text:
        text += ": check that this machine reaches it, then run the command again"
    return f"{text or 'uv printed nothing'}."


class NoSolution(UserError):
    """No versions satisfy all requirements."""


def as_of(day: str, undated: Iterable[str]) -> list[str]:
    """uv's options to ignore uploads after the day, except for `undated` packages."""
    if not day:
        return []
    return ["--exclude-newer", day, *(f"--exclude-newer-package={name}=false" for name in dict.fromkeys(undated))]


def compile_requirements(
    requirements: Sequence[str],
    profile: Profile,
    folders: Sequence[Path],
    words: Sequence[str],
    files: Mapping[str, str],
    output: str = "lock.txt",
) -> str:
    """Resolves requirements for the images' platform; returns the text of uv's file `output`.

    words: further options; files: texts, by name, of files that these read. NoSolution if no versions satisfy all
    requirements, UserError if uv fails otherwise; both with uv's reason.
    """
    command = [find_uv(), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--python-version", profile.python, "--python-platform", "x86_64-manylinux_2_28"]
    command += ["--no-emit-index-url", "--no-emit-find-links"]
    # Layers install wheels only (layers/common.sh), so skip releases without a wheel; an older one may have it.
    command += ["--only-binary", ":all:", *words, "--output-file", output, "pyproject.toml"]
    project = (
        f'[project]\nname = "profile-{profile.name}"\nversion = "0"\nrequires-python = ">={profile.python}"\n'
        f"dependencies = {json.dumps(requirements)}\n{torch_index_toml(profile, folders)}"
    )
    # In a temporary folder, because uv reads the pyproject.toml where it runs, and berth's overrides are for the tests.
    with TemporaryDirectory() as folder:
        for name, text in {**files, "pyproject.toml": project}.items():
            (Path(folder) / name).write_text(text)
        result = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=uv_environment(os.environ))
        if result.returncode != 0:
            kind = NoSolution if "No solution found" in result.stderr else UserError
            raise kind(failure_text(result.stderr))
        return (Path(folder) / output).read_text()


def torch_index_toml(profile: Profile, folders: Sequence[Path]) -> str:
    """The index of a profile's torch as tables of a pyproject.toml, used only for torch and torchvision; empty if the
    profile has no such index.

    Hashes come from the index, so torch's index must not provide other packages. A folder with these wheels replaces
    the index. https://docs.astral.sh/uv/concepts/indexes/#pinning-a-package-to-an-index
    """
    if not profile.torch_index:
        return ""
    # A profile without its own index does not get here: it must not use the CPU build that a folder may have.
    wheels = {name: profile.packages[name] for name in ("torch", "torchvision") if name in profile.packages}
    patterns = [f"{name}-{version}-*.whl" for name, version in wheels.items()]
    folder = next((each for each in folders if all(any(each.glob(pattern)) for pattern in patterns)), None)
    lines = [f"url = {json.dumps(str(folder.resolve()))}", 'format = "flat"'] if folder else []
    lines = lines or [f"url = {json.dumps(profile.torch_index)}"]
    table = ["[[tool.uv.index]]", 'name = "torch"', *lines, "explicit = true"]
    sources = [f'{name} = {{ index = "torch" }}' for name in wheels]
    return "\n".join([*table, "[tool.uv.sources]", *sources, ""])


def last_line(printed: str) -> str:
    """The last line that is not empty."""
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing was printed"


if __name__ == "__main__":
    try:
        os.execve(find_uv(), ["uv", *sys.argv[1:]], uv_environment(os.environ))
    except UserError as error:
        sys.exit(f"berth: error: {error}")
