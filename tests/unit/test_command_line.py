"""What build.py says of a command line that it can't take."""

import subprocess
import sys

import pytest

from berth.images import pins


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("promote", "error: FROM is missing: `python build.py promote --help` says what it takes."),
        ("promote a", "error: TO is missing: `python build.py promote --help` says what it takes."),
        ("diff a", "error: B is missing: `python build.py diff --help` says what it takes."),
        ("run train", "error: --data is missing: `python build.py run train --help` says what it takes."),
        (
            "push nope",
            "error: which: 'nope' is not one of 'train', 'serve', 'all'; see `python build.py push --help`.",
        ),
        (
            "pusch",
            "error: No such command 'pusch' (did you mean 'push'?); `python build.py --help` lists what there is.",
        ),
    ],
)
def test_a_mistake_is_named_as_the_help_names_it(words: str, said: str) -> None:
    done = subprocess.run([sys.executable, "build.py", *words.split()], cwd=pins.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == said
