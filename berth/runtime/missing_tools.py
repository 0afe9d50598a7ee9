"""Explains a requirement that pip can't install because the image lacks a tool (git, gcc, rustc, cmake), and suggests a
line or a wheel that needs no tool.
"""

import re
import sys
from collections.abc import Mapping, Sequence

from berth.runtime.hints.replaced_packages import normalised

_FROM_LINE = re.compile(
    r"^\s*(?:Collecting|Processing|Obtaining) (?P<what>\S+).*\(from (?P<via>.*->)?-r \S+ \(line (?P<line>\d+)\)\)"
)
_BUILT = re.compile(r"Failed building wheel for (?P<one>[\w.-]+)|Failed to build '(?P<other>[\w.-]+)'")
_TOOLS = re.compile(
    r"git|hg|svn|bzr|gcc|g\+\+|cc|c\+\+|clang|cmake|make|ninja|rustc|cargo|go|nvcc|pkg-config|swig|gfortran|pg_config|"
    r"mysql_config|nc-config|llvm-config|protoc|javac?|autoconf|automake|libtoolize|bison|flex|node|npm"
)
_MESSAGES = (
    (re.compile(r"Cannot find command '([\w-]+)'"), ""),
    (re.compile(r"No such file or directory: '([^']+)'"), ""),
    (re.compile(r"command '([^']+)' failed"), ""),
    (re.compile(r"\b([\w+-]+): (?:command )?not found"), ""),
    (re.compile(r"\b([\w-]+)(?: executable)? (?:was |is )?not found"), ""),
    (re.compile(r"can't find Rust compiler|cargo, the Rust package manager, is not installed"), "rustc"),
    (re.compile(r"CMake must be installed|(?i:could not find) CMake"), "cmake"),
    (re.compile(r"No CMAKE_CXX_COMPILER could be found"), "g++"),
    (re.compile(r"No CMAKE_C_COMPILER could be found|Unknown compiler\(s\): \[\['cc'\]"), "gcc"),
    (re.compile(r"CUDA_HOME environment variable is not set"), "nvcc"),
)
_VERSION_CONTROL = ("git", "hg", "svn", "bzr")
_TRIPLET = re.compile(r"^(?:.*/)?(?:x86_64-(?:pc-)?linux-gnu-)?")
_GITHUB = re.compile(
    r"(?:-e |--editable )?(?:(?P<package>[\w.\[\],-]+)\s*@\s*)?git\+(?:https|ssh)://(?:[^@/\s]+@)?github\.com/"
    r"(?P<path>[\w.-]+/[\w.-]+?)(?:\.git)?/?(?:@(?P<ref>[^#\s]+))?(?:#(?P<fragment>\S+))?(?P<marker>\s;.*)?$"
)
_LACKING = "which this image does not have"
_PREBUILT = {"psycopg2": "psycopg2-binary"}
"""Package → the same package with a wheel."""


def missing_tool_sentence(output: Sequence[str], name: str, text: str) -> str:
    """The error if pip's output mentions a missing tool; else "". name, text: of the requirements file."""
    tools = list(dict.fromkeys(tool for line in output if (tool := _tool(line))))
    if not tools:
        return ""
    lines = dict(enumerate((line.strip() for line in text.splitlines()), 1))
    repositories = [number for number, line in lines.items() if f"{tools[0]}+" in line.partition("#")[0]]
    if tools[0] in _VERSION_CONTROL and repositories:
        return _version_control(repositories, tools[0], name, lines)
    return _compiler(output, tools, name, lines)


def _tool(line: str) -> str:
    for pattern, tool in _MESSAGES:
        if match := pattern.search(line):
            found = tool or _TRIPLET.sub("", match[1])
            if _TOOLS.fullmatch(found):
                return found
    return ""


def _version_control(numbers: Sequence[int], tool: str, name: str, lines: Mapping[int, str]) -> str:
    """The error for all lines with repositories: use their archives, which need no tool."""
    where = " and ".join(f"line {number}" for number in numbers)
    ways = []
    for number in numbers:
        archive = archive_line(lines[number])
        ways.append(f"write {archive} in line {number}" if archive else _wheel(lines[number], tool, name))
    verb = "need" if len(numbers) > 1 else "needs"
    return f"{name} could not be installed: {where} {verb} {tool}, {_LACKING}; {' and '.join(ways)}."


def _compiler(output: Sequence[str], tools: Sequence[str], name: str, lines: Mapping[int, str]) -> str:
    """The error for a package that must be built: the line that requires it, and where to build it."""
    origins = [match for line in output if (match := _FROM_LINE.match(line))]
    built = next((match for line in reversed(output) if (match := _BUILT.search(line))), None)
    package = (built["one"] or built["other"]) if built else origins[-1]["what"] if origins else ""
    numbers = [int(match["line"]) for match in origins if normalised(package) in normalised(match["what"])]
    # For a path pip does not print the line.
    numbers += [number for number, line in lines.items() if package and normalised(package) in normalised(line)]
    line = lines.get(numbers[0], "") if numbers else ""
    is_direct = bool(line) and normalised(package) in normalised(line)
    origin = f"line {numbers[0]} ({line})" if is_direct else package
    if line and not is_direct:
        origin = f"{package}, which line {numbers[0]} ({line}) needs,"
    needed = " and ".join(tools[:3])
    if other := _PREBUILT.get(package):
        way = f"write {other} instead, which is the same package with a wheel"
    else:
        way = _wheel(line if is_direct else package, needed, name)
    return (
        f"{name} could not be installed: {origin} has no wheel for this image, and building one needs {needed}, "
        f"{_LACKING}; {way}."
    )


def _wheel(requirement: str, tools: str, name: str) -> str:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    quoted = requirement.partition(" #")[0].removeprefix("-e ").strip()
    way = (
        f'run `pip wheel --no-deps "{quoted}"` on a machine with Linux, Python {python} and {tools}, and put the wheel '
        f"next to {name}"
    )
    # pip finds a wheel next to the file for a package's name, but not for a path or a URL.
    return f"{way}, and its path (./NAME.whl) in place of the line" if "/" in quoted else way


def archive_line(line: str) -> str:
    """The line with the archive of a GitHub repository instead of the repository; "" for any other line.

    Example: `peft @ https://github.com/huggingface/peft/archive/v0.17.1.zip`.
    """
    match = _GITHUB.match(line.partition(" #")[0].strip())
    if match is None:
        return ""
    options = dict(part.partition("=")[::2] for part in (match["fragment"] or "").split("&"))
    package = match["package"] or options.get("egg") or match["path"].rpartition("/")[2]
    inner = f"#subdirectory={options['subdirectory']}" if "subdirectory" in options else ""
    archive = f"https://github.com/{match['path']}/archive/{match['ref'] or 'HEAD'}.zip"
    return f"{package} @ {archive}{inner}{match['marker'] or ''}"
