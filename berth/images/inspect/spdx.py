"""Packages' licences as SPDX expressions (https://spdx.org/licenses). Pure.

Nothing is guessed: a name that is not in SPDX's list becomes a `LicenseRef-`, such as LicenseRef-BSD if a package does
not say which BSD licence; a package that names no licence gets an empty text.
"""

import re
from collections.abc import Iterable
from email.message import Message
from email.parser import BytesHeaderParser
from functools import cache

from license_expression import (  # type: ignore[import-untyped]
    ExpressionError,
    Licensing,
    ParseError,
    get_spdx_licensing,
)

REFERENCE = "LicenseRef-"
_LONGEST_NAME = 60
"""A longer metadata field is a licence's text, not its name."""
# Names in use that mean one licence of the list. "Apache" without a version is counted as 2.0, which is what PyPI's
# classifier "Apache Software License" has meant since 2004.
_NAMES = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd 3-clause": "BSD-3-Clause",
    "expat": "MIT",  # as Debian calls it
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "nvidia proprietary software": f"{REFERENCE}NVIDIA-Proprietary",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
    "zlib/libpng license": "Zlib",
    "bsd license": f"{REFERENCE}BSD",
}
_CLASSIFIER = "License :: "
# Words that only one licence's text has; the first match wins.
_TEXTS = (
    ("MIT", "permission is hereby granted, free of charge, to any person obtaining a copy of this software and"),
    ("Apache-2.0", "apache license version 2.0, january 2004"),
    ("MPL-2.0", "mozilla public license version 2.0"),
    ("ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee"),
    ("BSD-3-Clause", "may be used to endorse or promote products derived from this software without specific prior"),
    (
        "BSD-2-Clause",
        "redistributions in binary form must reproduce the above copyright notice, this list of",
    ),
)
_MACHINE_READABLE = re.compile(rb"^Format(-Specification)?:.*(copyright-format|DEP5|dep5)", re.MULTILINE)


@cache
def _licensing() -> Licensing:
    return get_spdx_licensing()


def expression(text: str) -> str:
    """An SPDX expression in normal form; empty if the text is not one."""
    try:
        parsed = _licensing().parse(text)
    except (ExpressionError, ParseError):
        return ""
    if parsed is None or any(not key.startswith(REFERENCE) for key in _licensing().unknown_license_keys(parsed)):
        return ""
    return str(parsed)


def spdx_name(name: str) -> str:
    """The SPDX identifier of a licence's name, or a LicenseRef made from it."""
    plain = " ".join(name.split())
    found = _NAMES.get(plain.lower()) or expression(plain)
    if found:
        return found
    letters = re.sub(r"[^A-Za-z0-9.-]+", "-", plain).strip("-.")
    return f"{REFERENCE}{letters}" if letters else ""


def combined(names: Iterable[str]) -> str:
    """Licences that all apply, each once, sorted by name; empty if there are none."""
    parts = sorted({spdx_name(name) for name in names} - {""})
    return " AND ".join(f"({part})" if " OR " in part and len(parts) > 1 else part for part in parts)


def python_licence(metadata: bytes, other_licences: Iterable[str] = ()) -> str:
    """The licence that a distribution's METADATA declares: License-Expression, License, then classifiers (PEP 639).

    other_licences: from other sources, used if the metadata declares none.
    """
    headers: Message = BytesHeaderParser().parsebytes(metadata)
    declared = expression(str(headers.get("License-Expression", "")))
    if declared:
        return declared
    name = str(headers.get("License", "")).strip()
    if name and name.upper() != "UNKNOWN" and "\n" not in name and len(name) <= _LONGEST_NAME:
        return spdx_name(name)
    classifiers = [
        str(line).rpartition("::")[2].strip() for line in headers.get_all("Classifier", []) if _names_licence(line)
    ]
    return combined(classifiers) or combined(other_licences)


def text_licence(text: bytes) -> str:
    """The licence of a text, if it is one of the most frequent; else empty."""
    plain = " ".join(text.decode(errors="replace").lower().split())
    return next((licence for licence, words in _TEXTS if words in plain), "")


def _names_licence(classifier: object) -> bool:
    """Whether a classifier names a licence, which "License :: OSI Approved" alone does not."""
    return str(classifier).startswith(_CLASSIFIER) and not str(classifier).endswith(("OSI Approved", "DFSG approved"))


def debian_licence(names: Iterable[str], copyright_file: bytes) -> str:
    """The licences of a Debian package, all of them: its copyright file says which hold for which of its files.

    names: from dpkg.licence_names. For a file that is not machine-readable they may be the first words of sentences, so
    a name counts only if SPDX or /usr/share/common-licenses has it.
    """
    if _MACHINE_READABLE.search(copyright_file):
        return combined(names)
    known = [name for name in names if expression(name) or f"common-licenses/{name}".encode() in copyright_file]
    return combined(known)
