"""The kinds of models that machine.py loads: a folder per kind for each name."""

import shutil
from pathlib import Path

NAMES = ("a", "b", "c")
GATED = """
import time
from pathlib import Path

def model_fn(model_dir):
    folder = Path(model_dir)
    while (folder / "hold").exists():
        time.sleep(0.005)
    if (folder / "broken").exists():
        raise RuntimeError("broken")
    return folder.name

def predict_fn(data, name):
    Path(data + ".begun").touch()
    while not Path(data).exists():
        time.sleep(0.005)
    return name
"""
ECHO = "def model_fn(model_dir):\n    return model_dir\n\ndef predict_fn(data, model):\n    return [data, model]\n"
FAILS = "def model_fn(model_dir):\n    raise OSError('no weights')\n"
REFUSED = {"fails": 500, "huge": 507, "missing": 400}
"""Kinds of models that can't be loaded, and the status."""
LOADABLE = ("tiny0", "tiny1", "echo", "gated")


def write_models(base: Path, tiny: dict[str, Path]) -> None:
    """A folder of each kind for each name; `tiny` are question answering models."""
    for name in NAMES:
        for kind, source in tiny.items():
            shutil.copytree(source, base / f"models/{name}-{kind}")
        for kind, code in {"echo": ECHO, "gated": GATED, "fails": FAILS, "huge": ECHO}.items():
            folder = base / f"models/{name}-{kind}/code"
            folder.mkdir(parents=True)
            (folder / "inference.py").write_text(code)
        with (base / f"models/{name}-huge/weights").open("wb") as file:
            file.truncate(1 << 42)  # a sparse file, which takes no space on the disk
