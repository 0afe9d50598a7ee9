"""A module that is not installed: the line of requirements.txt, or the user's own module that is meant."""

from pathlib import Path

import pytest

from tests.unit.train.failures.printed import ending_sentence

MISSING = """\
Traceback (most recent call last):
  File "{code}/train.py", line 7, in <module>
    import x
ModuleNotFoundError: No module named '{module}'
"""


ADD_UNKNOWN = (
    "; add the package that has it (no_such_lightgbm, if it is named so) to requirements.txt next to your program"
)


@pytest.mark.parametrize(
    ("module", "hint"),
    [
        ("no_such_lightgbm", ADD_UNKNOWN),
        ("no_such_lightgbm.basic", ADD_UNKNOWN),
        ("cv2", "; add the line opencv-python-headless to requirements.txt next to your program"),
        ("umap.plot", "; add the line umap-learn to requirements.txt next to your program"),
        ("helpers.rows", ""),
        ("package.rows", ""),
        ("json.rows", ""),
        ("helper", "; did you mean your own helpers?"),
    ],
)
def test_a_missing_module_hints_at_requirements(tmp_path: Path, module: str, hint: str) -> None:
    (tmp_path / "helpers.py").touch()
    (tmp_path / "package").mkdir()
    text = MISSING.format(code=tmp_path, module=module)
    assert ending_sentence("train.py", 1, text.splitlines(), str(tmp_path)) == (
        f"ModuleNotFoundError: No module named '{module}' (raised at train.py:7){hint}"
    )


def test_a_program_that_mpi4py_runs_has_a_relative_name() -> None:
    text = MISSING.format(code="x", module="no_such_lightgbm").replace('"x/', '"')
    assert ending_sentence("train.py", 1, text.splitlines(), "/opt/ml/code") == (
        "ModuleNotFoundError: No module named 'no_such_lightgbm' (raised at train.py:7)" + ADD_UNKNOWN
    )
