"""serve/README.md lists errors with their status, parameters, content types, variables and limits on bodies."""

import logging
import re
from dataclasses import fields

import pytest

from berth.images.pins import pins
from berth.serve.configuration.variables import LOG_LEVEL, VARIABLES, Variable
from berth.serve.errors import STATUS
from berth.serve.limits import MEBIBYTE, RequestLimits
from berth.serve.questions.codecs import CODECS
from berth.serve.questions.fields import Parameters

PAGE = (pins.ROOT / "serve/README.md").read_text("utf-8")


def test_readme_has_every_error_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d{3})", PAGE, re.MULTILINE))
    assert rows == {str(kind): str(int(status)) for kind, status in STATUS.items()}


@pytest.mark.parametrize("name", [field.name for field in fields(Parameters)])
def test_readme_has_every_parameter(name: str) -> None:
    assert re.search(rf"^\| `{name}`", PAGE, re.MULTILINE)


@pytest.mark.parametrize("media_type", CODECS)
def test_readme_has_every_content_type(media_type: str) -> None:
    assert re.search(rf"^\| `{media_type}`", PAGE, re.MULTILINE)


def test_readme_has_every_variable_with_default_and_scope() -> None:
    """Compares names, defaults and scopes; nothing checks the descriptions."""
    table = PAGE.partition("| variable | what it does | default | has an effect |\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[1:]]
    assert {tuple(re.findall(r"`(\w+)`", row[0])): row[3] for row in rows} == {
        variable.names: _scope(variable) for variable in VARIABLES
    }
    defaults = {re.findall(r"`(\w+)`", row[0])[0]: row[2] for row in rows}
    for variable in VARIABLES:
        if variable.default not in (None, "", 0, False):
            shown = logging.getLevelName(variable.default).lower() if variable is LOG_LEVEL else str(variable.default)
            assert shown in defaults[variable.name]


def test_readme_and_security_have_the_body_limits() -> None:
    endpoint, batch = (RequestLimits(batch=batch) for batch in (False, True))
    row = next(line for line in PAGE.splitlines() if line.startswith("| `SAGEMAKER_MAX_PAYLOAD_IN_MB`"))
    assert f"{_mebibytes(endpoint.body_of_tokens)}, and {_mebibytes(batch.body_of_tokens)} in a batch transform" in row
    assert f"for our model {_mebibytes(endpoint.body)}, in a batch transform {_mebibytes(batch.body)}" in row
    security = (pins.ROOT / "SECURITY.md").read_text("utf-8")
    row = f"| bytes of a body | {_mebibytes(endpoint.body)}, and {_mebibytes(batch.body)} in a batch transform"
    assert row in security


def _scope(variable: Variable) -> str:
    return "always" if variable.many else "one model"


def _mebibytes(size: int) -> str:
    assert size % MEBIBYTE == 0
    return f"{size // MEBIBYTE} MiB"
