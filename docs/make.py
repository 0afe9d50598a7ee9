"""Writes docs/cli.md and docs/overview.svg: the help of every command, and the picture of README.

Usage: python docs/make.py. tests/unit/test_docs.py checks that both files are up to date.
"""

import runpy
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).resolve().parents[1]
CLI, PICTURE = ROOT / "docs" / "cli.md", ROOT / "docs" / "overview.svg"

_COLUMNS = 100
_CLI_HEAD = """\
# Commands

This page shows `--help` of every command of `python build.py`. `python docs/make.py` writes it.

- `--image NAME` names an image that you built `FROM` one of berth's images (`docs/derived-images.md`).
- `--json` prints one JSON document. It is an array for `push`, `uri` and `size`, and an object for the others.
- Results go to stdout. Progress and warnings go to stderr.
- Every error ends with a non-zero exit code. `diff` ends with 1 if the images differ. `outdated` ends with 1 if it
  finds something insecure and with 3 if that is not known. `size` ends with 1 over the budget.
- `make help` lists the targets of make, such as `demo`, `test`, `quick`, `gpu-check` and `clean`.
"""

_WIDTH, _HEIGHT = 920, 330
_BOX = (118, 50)
_COLOURS = {"plain": "#ffffff", "image": "#dbeafe", "result": "#dcfce7"}
# Kind, left, top and the lines of each box.
_BOXES = {
    "build": ("plain", 20, 140, ("build", "build.py build")),
    "train": ("image", 180, 95, ("training image", "berth-train")),
    "serve": ("image", 180, 185, ("inference image", "berth-serve")),
    "run train": ("plain", 370, 62, ("train", "build.py run train")),
    "model": ("result", 560, 62, ("model.tar.gz", "")),
    "run serve": ("plain", 740, 62, ("serve", "build.py run serve")),
    "push": ("plain", 370, 222, ("push to ECR", "build.py push")),
    "job": ("plain", 500, 222, ("training job", "estimator")),
    "s3": ("result", 630, 222, ("model.tar.gz", "on S3")),
    "endpoint": ("plain", 760, 222, ("endpoint", "deploy")),
}
_ARROWS = (
    *(("build", "train"), ("build", "serve"), ("run train", "model"), ("model", "run serve")),
    *(("push", "job"), ("job", "s3"), ("s3", "endpoint")),
)
# Left, top, width, height and title of each frame.
_FRAMES = ((350, 20, 550, 120, "your machine"), (350, 180, 550, 120, "Amazon SageMaker"))


def main() -> None:
    CLI.write_text(cli_page())
    PICTURE.write_text(picture())


def cli_page() -> str:
    """Markdown with the help of each command in the order of `build.py --help`."""
    group = runpy.run_path(str(ROOT / "build.py"))["CommandLine"](name="build.py")
    parts = [_CLI_HEAD]
    for words, command, context in _commands(group, typer.Context(group, info_name="build.py")):
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        parts.append(f"## {words}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _commands(group: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """The words, the command and its context, for each command that has no commands of its own."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(
            command, info_name=name, parent=context, terminal_width=_COLUMNS, max_content_width=_COLUMNS
        )
        if hasattr(command, "list_commands"):
            yield from ((f"{name} {words}", each, its) for words, each, its in _commands(command, inner))
        else:
            yield name, command, inner


def picture() -> str:
    """The way from a build to an endpoint, on this machine and on SageMaker, as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#1f2937">',
        "<title>berth builds two images; the same images run on your machine and on SageMaker</title>",
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#374151"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for left, top, width, height, title in _FRAMES:
        parts += [
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="#f3f4f6" stroke="#d1d5db"/>',
            _text(left + 12, top + 22, title, 'font-weight="bold"'),
        ]
    parts += [_line(*_edge(start, end)) for start, end in _ARROWS]
    # Both images are used in both frames.
    parts += [_line(310, 160, 345, 100), _line(310, 170, 345, 230)]
    parts += [f'<rect x="172" y="82" width="134" height="170" rx="8" {_DASHED}/>']
    parts += [_text(239, 274, "the same images", 'font-style="italic" text-anchor="middle"')]
    for kind, left, top, lines in _BOXES.values():
        parts += _box(_COLOURS[kind], left, top, lines)
    return "\n".join([*parts, "</svg>", ""])


_DASHED = 'fill="none" stroke="#6b7280" stroke-dasharray="5 4"'


def _box(colour: str, left: int, top: int, lines: tuple[str, str]) -> list[str]:
    width, height = _BOX
    title, command = lines
    middle = left + width // 2
    parts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" fill="{colour}" stroke="#374151"/>',
        _text(middle, top + (21 if command else 30), title, 'text-anchor="middle"'),
    ]
    if command:
        parts.append(_text(middle, top + 39, command, 'text-anchor="middle" font-size="11" fill="#4b5563"'))
    return parts


def _edge(start: str, end: str) -> tuple[int, int, int, int]:
    """From the right side of one box to the left side of another."""
    width, height = _BOX
    _, left, top, _ = _BOXES[start]
    _, to_left, to_top, _ = _BOXES[end]
    return left + width, top + height // 2, to_left - 1, to_top + height // 2


def _line(*ends: int) -> str:
    x1, y1, x2, y2 = ends
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#374151" marker-end="url(#head)"/>'


def _text(x: int, y: int, words: str, style: str) -> str:
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'


if __name__ == "__main__":
    main()
