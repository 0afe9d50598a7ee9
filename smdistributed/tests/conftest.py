"""The fixtures that hold for every test of the kit, here too."""

from tests.conftest import no_credentials, pretrained
from tests.unit.conftest import stripped_environment
from tests.unit.train.conftest import no_thread_dies

__all__ = ["no_credentials", "no_thread_dies", "pretrained", "stripped_environment"]
