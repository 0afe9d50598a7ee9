"""uv, which resolves locks and makes environments: where it is, and pip's settings in its variables.

`python -m berth.images.uv pip install …` runs it with these, as the Makefile does.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from berth.common.errors import UserError
from berth.images.build_network import gather


def find_uv() -> str:
    """The program; UserError where there is none."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise UserError("uv, which makes the locks, is not here: run `make setup`, which brings it.")
    return uv


def uv_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process of uv: those there are, and pip's settings, which uv does not read."""
    network = gather(environ)
    index = network.index
    settings = {
        "UV_DEFAULT_INDEX": index.url or "",
        "UV_INDEX": " ".join(index.extra),
        "UV_INSECURE_HOST": " ".join(index.trusted),
        "ALL_PROXY": index.proxy,  # uv asks HTTPS_PROXY first, if that is set
        "SSL_CERT_FILE": str(network.ca or ""),
        "UV_HTTP_TIMEOUT": "120",  # as docker/layers/common.sh has it
        "UV_NO_WRAP": "1",  # a sentence is one line, whatever COLUMNS says
    }
    old = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
    mine = {
        name: value
        for name, value in settings.items()
        if value and not environ.get(name) and not environ.get(old.get(name, name))
    }
    return {**environ, **mine}


def last_words(printed: str) -> str:
    """The last line that says something, on one line."""
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing was printed"


if __name__ == "__main__":
    try:
        os.execve(find_uv(), ["uv", *sys.argv[1:]], uv_environment(os.environ))
    except UserError as error:
        sys.exit(f"berth: error: {error}")
