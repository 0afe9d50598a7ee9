"""Exit codes and names of signals, as in a shell."""

import signal


def exit_code(code: int) -> int:
    """A subprocess' return code as a shell's exit code: 128 + n for signal n."""
    return 128 - code if code < 0 else code


def signal_name(number: int) -> str:
    """SIGKILL for 9; SIG99 for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
