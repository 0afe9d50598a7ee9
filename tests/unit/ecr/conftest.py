"""boto3 reads its data files once per test process, not once per session."""

from collections.abc import Iterator
from functools import cache

import pytest
from botocore.loaders import create_loader


@pytest.fixture(autouse=True, scope="session")
def shared_boto3_data() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", cache(create_loader))
        yield
