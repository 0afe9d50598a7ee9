"""Exit codes and signals, as a shell counts and names them."""

import signal


def exit_code(code: int) -> int:
    """What the shell makes of a subprocess' return code: 128 + n for signal n."""
    return 128 - code if code < 0 else code


def signal_name(number: int) -> str:
    """SIGKILL for 9; SIG99 for a number that has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
