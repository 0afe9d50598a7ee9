"""`find_settings`, for `doctor`, with broken AWS settings; the real boto3 sends no request."""

from pathlib import Path

import pytest

from berth.ecr.repositories.aws import find_settings

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a-canary"}
CONFIG = """
[profile no-source]
role_arn = arn:aws:iam::111122223333:role/x
source_profile = nowhere
[profile half]
aws_access_key_id = AKIAEXAMPLE
[profile process]
credential_process = sh -c "echo a-canary >&2; exit 1"
[profile unclosed]
credential_process = sh -c "
[profile chatty]
credential_process = echo a-canary
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without AWS settings except a config file; the metadata service is not used."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "garbage").write_text("garbage\n[[[")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "source", "message"),
    [
        pytest.param({}, None, "", id="no-aws"),
        pytest.param(KEYS | {"AWS_REGION": "eu-west-1"}, "env", "", id="complete"),
        pytest.param({"AWS_REGION": "eu-west-1"}, None, "", id="only-a-region"),
        pytest.param(
            {"AWS_PROFILE": "nonesuch"},
            None,
            "there is no AWS profile 'nonesuch': set AWS_PROFILE to one that `aws configure` made.",
            id="no-such-profile",
        ),
        pytest.param(
            {"AWS_CONFIG_FILE": "{folder}/garbage"},
            None,
            "AWS credentials: Unable to parse config file: {folder}/garbage.",
            id="garbage",
        ),
        pytest.param(
            {"AWS_SHARED_CREDENTIALS_FILE": "{folder}/binary"},
            None,
            "AWS credentials: Unable to parse config file: {folder}/binary.",
            id="binary",
        ),
        pytest.param(
            {"AWS_REGION": "nonsense"},
            None,
            "'nonsense' is not a region that this boto3 knows, such as us-east-1: give one, or, if the region is new, "
            "install a newer boto3 with `make lock setup`.",
            id="no-such-region",
        ),
        pytest.param(
            KEYS | {"AWS_DEFAULT_REGION": "us-east1"},
            "env",
            "'us-east1' is not a region that this boto3 knows, the nearest is us-east-1: give that, or, if the region "
            "is new, install a newer boto3 with `make lock setup`.",
            id="a-misspelt-region",
        ),
        pytest.param(
            KEYS | {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"},
            "env",
            "AWS_REGION is eu-west-1 and AWS_DEFAULT_REGION is eu-west-2: give --region, or unset one of them.",
            id="two-regions",
        ),
        pytest.param(
            {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE"},
            None,
            "AWS credentials: Partial credentials found in env, missing: AWS_SECRET_ACCESS_KEY.",
            id="half-of-a-key",
        ),
        pytest.param(
            {"AWS_PROFILE": "half", "AWS_CONFIG_FILE": "{folder}/config"},
            None,
            "AWS credentials: Partial credentials found in config-file, missing: aws_secret_access_key.",
            id="half-of-a-profile",
        ),
        pytest.param(
            {"AWS_PROFILE": "no-source", "AWS_CONFIG_FILE": "{folder}/config"},
            None,
            'AWS credentials: The source_profile "nowhere" referenced in the profile "no-source" does not exist.',
            id="no-source-profile",
        ),
        pytest.param(
            {"AWS_PROFILE": "process", "AWS_CONFIG_FILE": "{folder}/config"},
            None,
            "AWS credentials can't be read from custom-process: run it alone to see its error.",
            id="a-process-that-fails",
        ),
        pytest.param(
            {"AWS_PROFILE": "unclosed", "AWS_CONFIG_FILE": "{folder}/config"},
            None,
            "boto3 can't read AWS's settings (No closing quotation): fix ~/.aws/config or the variables AWS_….",
            id="a-quotation-that-does-not-end",
        ),
        pytest.param(
            {"AWS_PROFILE": "chatty", "AWS_CONFIG_FILE": "{folder}/config"},
            None,
            "boto3 can't read AWS's settings (Expecting value: line 1 column 1 (char 0)): fix ~/.aws/config or the "
            "variables AWS_….",
            id="a-process-that-prints-no-json",
        ),
        pytest.param(
            {"AWS_EC2_METADATA_DISABLED": "false", "AWS_METADATA_SERVICE_TIMEOUT": "soon"},
            None,
            "boto3 can't read AWS's settings (invalid literal for int() with base 10: 'soon'): fix ~/.aws/config or "
            "the variables AWS_….",
            id="no-number",
        ),
    ],
)
def test_find_settings_reports_credentials_region_and_errors(
    environment: dict[str, str], source: str | None, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text.format(folder=folder))
    region = None if message else environment.get("AWS_REGION")
    assert find_settings() == (source, region, message.format(folder=folder))
