"""The double of `smddprun`, the library's launcher of a rank: it sets a variable, then executes the command."""

import os
import sys


def main() -> None:
    """`smddprun COMMAND …`."""
    os.environ["SMDDP_DOUBLE_LAUNCHED"] = "1"
    os.execvp(sys.argv[1], sys.argv[1:])
