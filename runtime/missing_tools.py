"""A requirement that pip can't install because a tool is missing in the image (git, gcc, rustc, cmake), and the line or
the wheel that goes without it.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

_FROM_LINE = re.compile(
    r"^\s*(?:Collecting|Processing|Obtaining) (?P<what>\S+).*\(from (?P<via>.*->)?-r \S+ \(line (?P<line>\d+)\)\)"
)
_BUILT = re.compile(r"Failed building wheel for (?P<one>[\w.-]+)|Failed to build '(?P<other>[\w.-]+)'")
_CLONED = re.compile(r"^\s*Cloning (?P<url>\S+)")
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
_SCP = re.compile(r"^(?:ssh://)?git@(?P<host>[\w.-]+)[:/](?P<path>.+)$")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_TAG = re.compile(r"v?\d+(?:\.\d+)+[\w.+-]*|(?:release|version)[-/]?v?\d[\w.+-]*", re.IGNORECASE)
_LACKING = "which this image does not have"
_PREBUILT = {"psycopg2": "psycopg2-binary"}
"""Package → the one that is the same with a wheel."""


@dataclass(frozen=True, slots=True)
class Needed:
    """What pip lacked: the tools, the package that wanted them, and the line of the requirements file behind it."""

    tools: tuple[str, ...]
    package: str
    line: int = 0
    directly: bool = True


def missing_tool_sentence(output: Sequence[str], name: str, text: str) -> str:
    """Why `name`, a requirements file with that text, could not be installed, where pip's output tells of a missing
    tool; "" where it does not.
    """
    needed = needed_tools(output)
    if needed is None:
        return ""
    lines = dict(enumerate((line.strip() for line in text.splitlines()), 1))
    if not needed.line:  # pip does not say it of a path
        named = (number for number, line in lines.items() if _plain(needed.package) in _plain(line))
        needed = replace(needed, line=next(named, 0) if needed.package else 0)
    if needed.tools[0] in _VERSION_CONTROL:
        return _version_control(needed, name, lines, output)
    return _compiler(needed, name, lines)


def needed_tools(output: Sequence[str]) -> Needed | None:
    """What pip's output says is missing; None for nothing of the kind."""
    tools = tuple(dict.fromkeys(tool for line in output if (tool := _tool(line))))
    if not tools:
        return None
    origins = [match for line in output if (match := _FROM_LINE.match(line))]
    if tools[0] in _VERSION_CONTROL and origins:
        origin = origins[-1]
        return Needed(tools[:1], origin["what"], int(origin["line"]), not origin["via"])
    built = next((match for line in reversed(output) if (match := _BUILT.search(line))), None)
    package = (built["one"] or built["other"]) if built else ""
    for origin in origins:
        if _plain(origin["what"]).startswith(_plain(package)) or f"/{_plain(package)}" in _plain(origin["what"]):
            return Needed(tools, package, int(origin["line"]), not origin["via"])
    return Needed(tools, package)


def _tool(line: str) -> str:
    for pattern, tool in _MESSAGES:
        if match := pattern.search(line):
            found = tool or _TRIPLET.sub("", match[1])
            if _TOOLS.fullmatch(found):
                return found
    return ""


def _version_control(needed: Needed, name: str, lines: Mapping[int, str], output: Sequence[str]) -> str:
    """For a repository: its archive, which needs no tool; all lines of that kind at once."""
    tool = needed.tools[0]
    wanting = [number for number, line in lines.items() if f"{tool}+" in line.partition(" #")[0] and line[:1] != "#"]
    if not wanting:
        cloned = next((match["url"] for line in reversed(output) if (match := _CLONED.match(line))), "")
        archive = archive_line(f"{needed.package.partition('@')[0]} @ {tool}+{cloned}") if cloned else ""
        way = f"add the line {archive}" if archive else _wheel(needed.package, tool, name)
        origin = f", which line {needed.line} wants," if needed.line else ""
        return f"{name} could not be installed: {needed.package}{origin} needs {tool}, {_LACKING}; {way}."
    where = " and ".join(f"line {number}" for number in wanting)
    ways = []
    for number in wanting:
        archive = archive_line(lines[number])
        ways.append(f"write {archive} in line {number}" if archive else _wheel(lines[number], tool, name))
    verb = "need" if len(wanting) > 1 else "needs"
    return f"{name} could not be installed: {where} {verb} {tool}, {_LACKING}; {' and '.join(ways)}."


def _compiler(needed: Needed, name: str, lines: Mapping[int, str]) -> str:
    tools = " and ".join(needed.tools[:3])
    line = lines.get(needed.line, "")
    origin = f"line {needed.line} ({line})" if needed.directly and line else needed.package
    if line and not needed.directly:
        origin = f"{needed.package}, which line {needed.line} ({line}) wants,"
    if other := _PREBUILT.get(needed.package):
        way = f"write {other} instead, which is the same with a wheel"
    else:
        way = _wheel(line if needed.directly and line else needed.package, tools, name)
    return (
        f"{name} could not be installed: {origin} has no wheel for this image, and building one needs {tools}, "
        f"{_LACKING}; {way}."
    )


def _wheel(requirement: str, tools: str, name: str) -> str:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    quoted = requirement.partition(" #")[0].removeprefix("-e ").strip()
    way = (
        f'run `pip wheel --no-deps "{quoted}"` on a machine with Linux, Python {python} and {tools}, and put the wheel '
        f"next to {name}"
    )
    # pip takes a wheel that lies there for a name, and not for a path or an address.
    return f"{way}, and its path (./NAME.whl) in place of the line" if "/" in quoted else way


def archive_line(line: str) -> str:
    """The line with the archive of a git repository's state in place of the repository: `peft @
    https://github.com/huggingface/peft/archive/refs/tags/v0.17.1.zip`. "" if its host has no archives that are known.
    """
    requirement, _, marker = line.partition(" #")[0].removeprefix("-e ").removeprefix("--editable ").partition(" ;")
    before, found, rest = requirement.strip().partition("git+")
    if not found:
        return ""
    address, _, fragment = rest.partition("#")
    options = dict(part.partition("=")[::2] for part in fragment.split("&") if part)
    if scp := _SCP.match(address):
        host, path = scp["host"], scp["path"]
    else:
        url = urlsplit(address)
        host, path = url.hostname or "", url.path.lstrip("/")
    path, _, ref = path.partition("@")
    path = path.removesuffix("/").removesuffix(".git")
    archive = _archive(host, path, ref)
    if not archive:
        return ""
    package = before.strip().removesuffix("@").strip() or options.get("egg", "") or path.rpartition("/")[2]
    inner = f"#subdirectory={options['subdirectory']}" if "subdirectory" in options else ""
    return f"{package} @ {archive}{inner}" + (f" ;{marker}" if marker else "")


def _archive(host: str, path: str, ref: str) -> str:
    """The address of a host's archive. A ref without a form of its own is taken for a branch."""
    if host == "github.com":
        if not ref:
            return f"https://github.com/{path}/archive/HEAD.zip"
        if _COMMIT.fullmatch(ref):
            return f"https://github.com/{path}/archive/{ref}.zip"
        full = ref if ref.startswith("refs/") else f"refs/{'tags' if _TAG.fullmatch(ref) else 'heads'}/{ref}"
        return f"https://github.com/{path}/archive/{full}.zip"
    if host == "gitlab.com":
        ref = ref or "HEAD"
        return f"https://gitlab.com/{path}/-/archive/{ref}/{path.rpartition('/')[2]}-{ref.replace('/', '-')}.zip"
    if host == "bitbucket.org":
        return f"https://bitbucket.org/{path}/get/{ref or 'HEAD'}.zip"
    return ""


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(".", "_")
