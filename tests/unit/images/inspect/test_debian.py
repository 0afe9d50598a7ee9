"""Parsing apt's simulated upgrade."""

import pytest

from berth.common.errors import UserError
from berth.images.inspect import debian
from berth.images.inspect.debian import Update

# The output of apt 2.6.
SIMULATED = """\
Release a=now
Release v=12,o=Debian,a=oldstable-security,n=bookworm-security,l=Debian-Security,c=main,b=amd64
Release v=12.15,o=Debian,a=oldstable,n=bookworm,l=Debian,c=main,b=amd64
Inst procps [2:4.0.1-1] (2:4.0.2-3 Debian:12.15/oldstable [amd64])
Inst openssl [3.0.1-1] (3.0.19-1 Debian:12.15/oldstable, Debian-Security:12/oldstable-security [amd64])
Inst libnew (1.0-1 Debian:12.15/oldstable [amd64])
Inst tzdata [2024a-0+deb12u1] (2026f-0+deb12u1 Debian-Security:12/oldstable-security [all])
Conf procps (2:4.0.2-3 Debian:12.15/oldstable [amd64])
"""


def test_security_updates_come_first() -> None:
    assert debian.updates(SIMULATED) == [
        Update("openssl", "3.0.1-1", "3.0.19-1", security=True),
        Update("tzdata", "2024a-0+deb12u1", "2026f-0+deb12u1", security=True),
        Update("procps", "2:4.0.1-1", "2:4.0.2-3", security=False),
    ]


def test_missing_security_archive_is_reported() -> None:
    printed = "".join(line for line in SIMULATED.splitlines(keepends=True) if "l=Debian-Security" not in line)
    with pytest.raises(UserError, match=r"none of the image's package archives is Debian's security archive"):
        debian.updates(printed)


def test_no_updates() -> None:
    assert debian.updates("\n".join(SIMULATED.splitlines()[:3])) == []
