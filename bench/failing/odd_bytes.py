"""Writes Latin-1, lines of 1 MB, and carriage returns; then fails."""

import sys

sys.stdout.buffer.write("gr\xfc\xdfe\n".encode("latin-1"))
sys.stdout.buffer.write(b"x" * 1_000_000 + b"<end>\n")
sys.stderr.buffer.write("50%\r60%\rcaf\xe9\r\n".encode("latin-1"))
sys.stderr.buffer.write(("y" * 70_000 + "\N{SNOWMAN}" * 400_000 + "\n").encode())
sys.stdout.flush()
raise ValueError("stra\xdfe")
