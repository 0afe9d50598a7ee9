"""Hints for a file or folder that is not where a job's program or a handler looks for it."""

import re
from pathlib import Path

from berth.contract.nearest import close_match
from berth.runtime.hints.program import ProgramContext, RaisedException

# Messages of the operating system, datasets, transformers (for a model's folder) and torch.save.
_PATHS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:No such file or directory|Permission denied|Read-only file system|Unable to find|Not a directory):? "
        r"['\"](?P<path>[^'\"]+)['\"]",
        r"Couldn't find any data file at (?P<path>\S+?)\.?(?:\s|$)",
        r"Directory (?P<path>\S+) not found",
        r"Repo id must .*: '(?P<path>[./][^']+)'",
        r"Parent directory (?P<path>\S+) does not exist",
    )
)
_NO_HUB = re.compile(
    r"couldn't connect to 'https://huggingface\.co'|on the Hub \((?:OfflineMode|ConnectionError|Local)"
)
_INPUT, _MODEL, _OUTPUT = Path("/opt/ml/input/data"), Path("/opt/ml/model"), Path("/opt/ml/output")
_UNWRITABLE = re.compile(r"Permission denied|Read-only file system")
_SHOWN = 5
_LISTED = 2000


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """Where the file is, or where the program may write."""
    no_hub = _NO_HUB.search(raised.message.replace("\u2019", "'"))
    text = next((match["path"] for each in _PATHS if (match := each.search(raised.message))), "")
    if context.serving:
        if no_hub:
            return (
                "; this endpoint does not reach the Hub: pack the files into model.tar.gz and load them from model_dir"
            )
        if _UNWRITABLE.search(raised.message):
            return "; a model's folder may be read-only: write to /tmp"
        return _missing_in_model(Path(text), context) if text else ""
    if no_hub:
        return (
            "; the job does not reach the Hub: put the files into a channel, such as model, and load "
            'os.environ["SM_CHANNEL_MODEL"]'
        )
    if not text:
        return ""
    if text.startswith("s3:"):
        return f"; give the job {text} as a channel, and read it in the channel's folder"
    path = Path(text)
    channels = context.channels
    if raised.name == "PermissionError" or "Read-only" in raised.message:
        return _write(path, channels)
    if any(path.is_relative_to(folder) for folder in (_MODEL, _OUTPUT, *_outputs(context))):
        folder = path.parent if path.suffix else path
        return f'; create the folder first: os.makedirs("{folder}", exist_ok=True)'
    return _missing(path, context, channels)


def _outputs(context: ProgramContext) -> list[Path]:
    names = ("SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR")
    return [Path(context.environ[name]) for name in names if context.environ.get(name)]


def _write(path: Path, channels: dict[str, Path]) -> str:
    where = "channels are read-only: " if any(path.is_relative_to(folder) for folder in channels.values()) else ""
    return f"; {where}write the model to SM_MODEL_DIR (/opt/ml/model) and other results to SM_OUTPUT_DATA_DIR"


def _missing(path: Path, context: ProgramContext, channels: dict[str, Path]) -> str:
    inside = next((name for name, folder in channels.items() if path.is_relative_to(folder)), "")
    if inside:
        return _in_channel(path, inside, channels[inside])
    for name, folder in channels.items():
        if found := _find_below(path.name, folder):
            inner = found.relative_to(folder)
            return f'; channel {name} has it: os.path.join(os.environ["SM_CHANNEL_{name.upper()}"], "{inner}")'
    if not path.is_absolute() and (found := _find_below(path.name, context.code_dir)):
        return f"; your source folder has it as {found.relative_to(context.code_dir)}"
    listed = " and ".join(f"{name} ({folder})" for name, folder in channels.items())
    if path.is_relative_to(_INPUT) and path != _INPUT:
        wanted = path.relative_to(_INPUT).parts[0]
        near = close_match(wanted, channels, 0.6)
        read = f"read SM_CHANNEL_{near.upper()}, or " if near else ""
        has = f"its channels are {listed}: {read}name one {wanted}" if channels else "it has none: give it data"
        return f"; the job has no channel {wanted}; {has}"
    if channels:
        return f"; a job finds its data in its channels, here {listed}, and other files in source_dir"
    return "; a job finds its data in its channels (fit(inputs), or --data), and other files in source_dir"


def _in_channel(path: Path, name: str, folder: Path) -> str:
    files = sorted(
        str(each.relative_to(folder))
        for _, each in zip(range(_LISTED), folder.rglob("*"), strict=False)
        if each.is_file()
    )
    near = close_match(str(path.relative_to(folder)), files, 0.6)
    has = ", ".join(files[:_SHOWN]) + (" and others" if len(files) > _SHOWN else "") if files else "no file"
    return f"; channel {name} has {has}" + (f": did you mean {near}?" if near else "")


def _missing_in_model(path: Path, context: ProgramContext) -> str:
    """The hint for a file that a handler can't find."""
    model = context.code_dir.parent if context.code_dir.name == "code" else _MODEL
    for folder, variable in ((context.code_dir, "os.path.dirname(__file__)"), (model, "model_dir")):
        if found := _find_below(path.name, folder):
            return f'; the model has it: os.path.join({variable}, "{found.relative_to(folder)}")'
    return "; a handler's files are in model_dir and beside its own file (__file__)"


def _find_below(name: str, folder: Path) -> Path | None:
    """A file or folder with this name below a folder; only the first 2,000 entries are searched."""
    return next((each for _, each in zip(range(_LISTED), folder.rglob("*"), strict=False) if each.name == name), None)
