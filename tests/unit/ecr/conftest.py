"""Credentials for AWS, and boto3 reads its data files once per test process, not once per session."""

from collections.abc import Iterator
from functools import cache

import pytest
from botocore.loaders import create_loader


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture(autouse=True, scope="session")
def shared_boto3_data() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", cache(create_loader))
        yield
