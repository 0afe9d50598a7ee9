"""The programs in bench/: each can be imported, has help, and is in the README."""

import re
from importlib import import_module

import pytest

from berth.images.pins import pins

ALL = {path.name: path.read_text() for path in (pins.ROOT / "bench").glob("*.py") if "__main__" in path.read_text()}
PROGRAMS = sorted(name for name, text in ALL.items() if "program.end_with(main)" in text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_shows_docstring_without_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(f"bench.{name.removesuffix('.py')}")
    with pytest.raises(SystemExit) as end:
        module.main(["--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: python -m {module.__name__} ")
    assert str(module.__doc__).partition("\n")[0] in printed
    # The docstring's own line "Usage: …" must name the same module.
    assert re.findall(r"^Usage: (?:\w+=\w+ )?python -m (\S+)", str(module.__doc__), re.MULTILINE) == [module.__name__]


def test_readme_lists_every_program() -> None:
    listed = re.findall(r"^\| `bench/(\w+\.py)` \|", (pins.ROOT / "bench/README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(ALL)
