"""Fixtures of all tests of berth, for this folder."""

from tests.conftest import no_credentials, pretrained
from tests.unit.conftest import stripped_environment
from tests.unit.train.conftest import no_thread_dies

__all__ = ["no_credentials", "no_thread_dies", "pretrained", "stripped_environment"]
