"""Which tests run in the same process, one after the other, when several processes share a suite.

The tests of a file always do, and those of the files of one group below: they share an image that takes minutes to
build, or something that exists once on a machine.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "builds": (
        "tests/images/test_builds.py",
        "tests/images/test_plain_build.py",
        "tests/images/test_reproducible.py",
        "tests/images/test_secrets.py",
        "tests/images/files/test_files.py",
    ),
    # ECR's port and names.
    "ECR": ("tests/registry/test_push.py", "tests/registry/test_push_refused.py"),
    # The hosts are called algo-1, algo-2 in every job, and all jobs share a network.
    "SDK v3": ("tests/local_mode/test_sdk3.py", "tests/local_mode/test_examples_sdk3.py"),
}
_GROUPS = {file: group for group, files in TOGETHER.items() for file in files}


class FileGroups(LoadScopeScheduling):
    """Gives a process all tests of a file or group at once."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _GROUPS.get(file, file)


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileGroups:
    """xdist's hook; load this module with `-p tests.groups`."""
    return FileGroups(config, log)
