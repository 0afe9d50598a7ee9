"""Describes deaths by signal and crashes in native code in one sentence."""

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from berth.runtime import memory
from berth.runtime.codes import signal_name
from berth.runtime.hints.program import ProgramContext
from berth.train.failures.raised import Frame, read_frames
from berth.train.failures.sentence import one_line, place

STOPS = (signal.SIGTERM, signal.SIGINT)
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL})
_NEAR_LIMIT = 0.8
"""Share of the memory limit. A container that peaked below it was probably not killed for memory."""
MORE_SHM = (
    "give the container more (docker run --shm-size 8g, or shm_size in the local session's container_config), or use "
    "no data loader workers"
)
# faulthandler's output: the crash, then the frames of the thread, the innermost first.
_FATAL = re.compile(r"^Fatal Python error: (.+)")
_TIMEOUT = re.compile(r"^Timeout \(\d+:\d\d:\d\d")
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x\w+ ")
_FAULT_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')
# libstdc++'s message about an uncaught C++ exception.
_TERMINATED = re.compile(r"terminate called after throwing an instance of '([^']+)'")
_WHAT = re.compile(r"^\s+what\(\):\s+(.+)")
# Exceptions that say that a process died, but not why.
_LOST_PROCESS = re.compile(
    r"exited unexpectedly|is killed by signal: Killed|SIGKILL|exit(?:code|ed with code)\s*:?\s*-9\b|BrokenProcessPool|"
    r"terminated abruptly|Connection (?:reset|closed) by peer|^EOFError|Ran out of input"
)


def bus_error_sentence(who: str) -> str:
    """A death by SIGBUS: a page of a mapped file could not be allocated; the files that ranks map are in /dev/shm."""
    return f"{who} was killed by SIGBUS: /dev/shm is probably full; {MORE_SHM}."


def unasked_stop_sentence(who: str, number: int) -> str:
    """A stop signal that did not come from outside the container."""
    return f"{who} was stopped by {signal_name(number)}, which the program or another process in the container sent."


def killed_sentence(
    who: str,
    number: int,
    lines: Sequence[str] = (),
    context: ProgramContext | None = None,
    *,
    killed_for_memory: bool = False,
    root: Path = Path("/"),
) -> str:
    """`rank 1 on algo-2 was killed by SIGKILL: out of memory, …`: the sentence for a death by the signal `number`.

    lines: the last lines on stderr. killed_for_memory: the kernel's OOM killer killed a process of this container while
    the program ran. root: of the file system.
    """
    name = signal_name(number)
    peak, limit = memory.memory_peak(root), memory.memory_limit(root)
    used = f"peak {_mib(peak)} of {_mib(limit)}"
    if killed_for_memory:
        return (
            f"{who} was killed by {name}: out of memory ({used}); use a smaller batch, fewer processes per host or a "
            "larger instance."
        )
    if number == signal.SIGKILL and peak is not None and limit is not None and peak < _NEAR_LIMIT * limit:
        return (
            f"{who} was killed by {name}, and memory was not short ({used}): find out who sent the signal, such as the "
            "program itself, the engine or a `docker kill`."
        )
    if number == signal.SIGKILL:
        return f"{who} was killed by {name} (out of memory? {used}); if so, use a smaller batch or a larger instance."
    if number == signal.SIGBUS:
        return bus_error_sentence(who)
    if number in STOPS:
        return f"{who} was stopped by {name}; the job was ended from outside before it was done."
    if number in _CRASHES:
        return _crash_sentence(who, name, lines, context)
    return f"{who} was killed by {name}."


def _crash_sentence(who: str, name: str, lines: Sequence[str], context: ProgramContext | None) -> str:
    """A crash in native code, with the C++ exception and the calling line of Python, if they are known."""
    exception = _cpp_exception(lines)
    crash = next((index for index, line in enumerate(lines) if _FATAL.match(line)), len(lines))
    frames = _frames_below(lines, crash)
    where = place(frames, context) if context else ""
    sentence = f"{who} was killed by {name}, a crash in native code"
    if exception:
        sentence += f": {exception}"
    if where:
        return f"{sentence} (called at {where})"
    return (
        f"{sentence}; set PYTHONFAULTHANDLER to 1 in the job's environment, and the log shows which line of Python "
        "called it."
    )


def _cpp_exception(lines: Sequence[str]) -> str:
    """The uncaught C++ exception that ended the program; empty if stderr has none."""
    for index, line in enumerate(lines):
        if match := _TERMINATED.search(line):
            what = next((text[1] for later in lines[index + 1 : index + 3] if (text := _WHAT.match(later))), "")
            return one_line(f"{match[1]}: {what}" if what else match[1], 300)
    return ""


def hang_sentence(name: str, lines: Sequence[str], context: ProgramContext) -> str:
    """The sentence for a program that faulthandler.dump_traceback_later ended; empty for any other."""
    timeout = next((line for line in lines if _TIMEOUT.match(line)), "")
    starts = [index for index, line in enumerate(lines) if _THREAD.match(line)]
    if not timeout or not starts:
        return ""
    where = place(_frames_below(lines, starts[-1]), context)  # the main thread is the last
    at = f" at {where}" if where else ""
    return f"{name} ended itself{at}: {timeout.strip()} (a time-out of faulthandler)"


def _frames_below(lines: Sequence[str], start: int) -> list[Frame]:
    """faulthandler's frames after the line `start`, the outermost first."""
    frames: list[Frame] = []
    for line in lines[start + 1 :]:
        if match := _FAULT_FRAME.match(line):
            frames += read_frames([(match["file"], match["line"], match["function"])])
        elif frames:
            break
    return frames[::-1]


def lost_process_sentence(program: str, message: str, root: Path = Path("/")) -> str | None:
    """The sentence for an exception that only says that a process ended, such as a DataLoader's worker; None for any
    other exception. Call it if the OOM killer has killed a process of this container.
    """
    if not _LOST_PROCESS.search(message):
        return None
    used = f"peak {_mib(memory.memory_peak(root))} of {_mib(memory.memory_limit(root))}"
    return (
        f"a process of {program} was killed: out of memory ({used}); use a smaller batch, fewer data loader workers or "
        f"a larger instance (its message: {one_line(message, 200)})."
    )


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size >> 20} MiB"
