"""In each Python of a rank: records how the interpreter ended, for `berth.train.failures.ends`.

Only the interpreter knows which of the exceptions on stderr ended it; the others were caught and logged.
berth.train.startup.start_hook calls `install`. This module imports only modules that every Python loads anyway, and a
record is a Python literal: a user's own file could be named `json` or `traceback`.
"""

import atexit
import os
import sys
import time

TYPE_CHECKING = False  # typing's own would cost each Python of the image 4 ms
if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence
    from types import CodeType, ModuleType, TracebackType
    from typing import Any, NoReturn

ENDS_FOLDER = "BERTH_PYTHON_ENDS"
"""Variable with the folder of the records."""
PARENTS_VARIABLE = "BERTH_PYTHON_PARENTS"
"""Variable with the process ids of this process' Python ancestors, the outermost first."""
HOOKED = "hooked"
"""File in the folder: the process ids of the outermost Pythons that record their end. If such a process has no record,
it did not raise.
"""
RAISED, EXIT, OS_EXIT, CHILD = "raised", "sys.exit", "os._exit", "child"
_MESSAGE_CHARACTERS = 4000
_FRAMES_EACH_END = 200
_CHAIN = 5
_MEMBERS = 8
_THREAD_SECONDS = 60.0

_installed: "list[_Recorder]" = []


def install(environ: "MutableMapping[str, str]") -> None:
    """Record this process' end, if it belongs to a rank. A second call, as in a virtual environment, does nothing."""
    folder = environ.get(ENDS_FOLDER)
    if not folder or _installed:
        return
    pid = str(os.getpid())
    above = [parent for parent in environ.get(PARENTS_VARIABLE, "").split() if parent.isdigit() and parent != pid]
    environ[PARENTS_VARIABLE] = " ".join([*above, pid])
    parents = [int(parent) for parent in above]
    recorder = _Recorder(folder, parents)
    _installed.append(recorder)
    if not parents:
        recorder.mark()
    recorder.watch()
    from berth.train.startup import after_import

    after_import.register("multiprocessing.process", recorder.watch_processes)
    after_import.register("threading", recorder.watch_threads)


class _Recorder:
    def __init__(self, folder: str, parents: "list[int]") -> None:
        self.folder = folder
        self.parents = parents
        self.pid = os.getpid()
        self.last: dict[str, Any] = {}
        self.thread_exception: tuple[float, dict[str, Any]] | None = None  # when it ended a thread

    def mark(self) -> None:
        """Note that this Python records its end."""
        try:
            descriptor = os.open(f"{self.folder}/{HOOKED}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(descriptor, f"{self.pid}\n".encode())
            os.close(descriptor)
        except OSError:
            return

    def watch(self) -> None:
        """Wrap sys.excepthook, sys.exit and os._exit."""
        print_exception, leave, leave_at_once = sys.excepthook, sys.exit, os._exit

        def excepthook(kind: "type[BaseException]", value: BaseException, trace: "TracebackType | None") -> None:
            self.record(RAISED, 1, value)
            print_exception(kind, value, trace)

        def exit(status: object = None, /) -> "NoReturn":
            self.record_exit(status)
            leave(status)  # type: ignore[arg-type]

        def _exit(status: int) -> "NoReturn":
            if status:
                self.record(OS_EXIT, status, sys.exc_info()[1], frames=_callers())
            leave_at_once(status)

        for ours, original in ((exit, leave), (_exit, leave_at_once)):
            ours.__doc__, ours.__module__ = original.__doc__, original.__module__
            ours.__qualname__ = ours.__name__
        sys.excepthook, sys.exit, os._exit = excepthook, exit, _exit
        atexit.register(self._record_last)

    def watch_processes(self, module: "ModuleType") -> None:
        """Record an exception that ends a process of multiprocessing, which prints it without calling excepthook."""
        run = module.BaseProcess.run

        def recorded_run(process: "Any") -> None:
            try:
                run(process)
            except Exception as error:
                self.record(CHILD, 1, error)
                raise

        recorded_run.__name__, recorded_run.__qualname__, recorded_run.__doc__ = "run", run.__qualname__, run.__doc__
        module.BaseProcess.run = recorded_run

    def watch_threads(self, module: "Any") -> None:
        """Keep the exception that ended a thread: the program may afterwards end with only an exit code."""
        show = module.excepthook

        def excepthook(args: "Any", /) -> None:
            raised = _real_exception(args.exc_value)
            if raised is not None:
                self.thread_exception = time.monotonic(), _describe(raised, _CHAIN)
            show(args)

        module.excepthook = excepthook

    def _record_last(self) -> None:
        """Record the exception if the program has replaced our excepthook: Python keeps it in sys.last_value."""
        value = getattr(sys, "last_value", None)
        if value is not None and self.last.get("how") != RAISED:
            self.record(RAISED, 1, value)

    def record_exit(self, status: object) -> None:
        """Record a call of sys.exit with an error; with status 0, delete the record of an earlier call."""
        handled = sys.exc_info()[1]
        if status is None or status is False or status == 0:
            self._forget()
        elif isinstance(status, int):
            self.record(EXIT, status & 0xFF, handled, frames=_callers())
        else:
            self.record(EXIT, 1, handled, frames=_callers(), text=str(status))

    def record(
        self,
        how: str,
        code: int,
        value: "BaseException | None",
        frames: "Sequence[tuple[str, int, str]]" = (),
        text: str = "",
    ) -> None:
        """Write this process' record; it replaces an earlier one. Never raises, so the program ends as without it."""
        try:
            pid = os.getpid()
            last = self.last if self.last.get("pid") == pid else {}
            raised = _real_exception(value)
            if how != RAISED and last.get("how") == RAISED:
                return  # keep the exception that ended the main thread
            described = None if raised is None else _describe(raised, _CHAIN)
            if how == EXIT and not text:
                described = self._recent_thread_exception() or described
            if described is None and (how == RAISED or (last.get("code") == code and not text)):
                return  # a plain SystemExit; or multiprocessing exits with the code of an already recorded end
            self.last = {
                "pid": pid,
                "parents": [*self.parents, self.pid] if pid != self.pid else self.parents,
                "when": time.time(),
                "how": how,
                "code": code,
                "text": text[:_MESSAGE_CHARACTERS],
                "rank": os.environ.get("RANK", ""),
                "program": os.path.basename(sys.argv[0]) if sys.argv else "",
                "frames": list(frames),
                "raised": described,
            }
            path = f"{self.folder}/{pid}"
            descriptor = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(descriptor, repr(self.last).encode("utf-8", "backslashreplace"))
            finally:
                os.close(descriptor)
            os.rename(f"{path}.part", path)
        except Exception:
            return

    def _recent_thread_exception(self) -> "dict[str, Any] | None":
        """The unhandled exception that ended a thread within the last _THREAD_SECONDS, if any."""
        if self.thread_exception is None or time.monotonic() - self.thread_exception[0] > _THREAD_SECONDS:
            return None
        return self.thread_exception[1]

    def _forget(self) -> None:
        if self.last and self.last.get("how") != RAISED:
            self.last = {}
            try:
                os.unlink(f"{self.folder}/{os.getpid()}")
            except OSError:
                return


def _real_exception(value: "BaseException | None") -> "BaseException | None":
    """The exception; of SystemExit and the like the one behind it in the chain. None if there is none."""
    for _ in range(_CHAIN):
        if value is None or not isinstance(value, SystemExit | KeyboardInterrupt | GeneratorExit):
            return value
        value = value.__cause__ or value.__context__
    return None


def _describe(value: BaseException, chain: int) -> "dict[str, Any]":
    """An exception as plain types, with the one behind it in the chain and the members of a group."""
    kind = type(value)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    frames = _frames(value.__traceback__)
    try:
        message = str(value.msg if isinstance(value, SyntaxError) else value)
    except Exception:
        message = "(its __str__ failed)"
    if isinstance(value, SyntaxError) and value.filename:
        frames.append((str(value.filename), value.lineno or 0, ""))
    notes = [str(note) for note in getattr(value, "__notes__", ()) or ()]
    behind = value.__cause__ or (None if value.__suppress_context__ else value.__context__)
    members = value.exceptions[:_MEMBERS] if isinstance(value, BaseExceptionGroup) else ()
    return {
        "kind": f"{module}{kind.__qualname__}",
        "message": "\n".join([message, *notes])[:_MESSAGE_CHARACTERS],
        "frames": frames,
        "behind": _describe(behind, chain - 1) if behind is not None and chain else None,
        "caused": value.__cause__ is not None,
        "members": [_describe(member, chain - 1) for member in members] if chain else [],
    }


def _frames(trace: "TracebackType | None") -> "list[tuple[str, int, str]]":
    """File, line and function of each frame, the outermost first; a deep recursion is shortened in the middle."""
    frames = []
    while trace is not None:
        frames.append(_place(trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    most = 2 * _FRAMES_EACH_END
    return frames if len(frames) <= most else frames[:_FRAMES_EACH_END] + frames[-_FRAMES_EACH_END:]


def _callers() -> "list[tuple[str, int, str]]":
    """The frames of the caller of sys.exit or os._exit, the outermost first."""
    frames: list[tuple[str, int, str]] = []
    frame = sys._getframe(1)
    while (up := frame.f_back) is not None and len(frames) < _FRAMES_EACH_END:
        frame = up
        frames.append(_place(frame.f_code, frame.f_lineno or 0))
    return [place for place in reversed(frames) if place[0] != __file__]


def _place(code: "CodeType", line: int) -> "tuple[str, int, str]":
    return code.co_filename, line, code.co_name
