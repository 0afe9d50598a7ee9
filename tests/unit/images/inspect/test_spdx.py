"""Licences of packages as SPDX expressions."""

import pytest

from berth.images.inspect import spdx


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: GPL", "MIT OR Apache-2.0"),
        ("License-Expression: mit", "MIT"),
        ("License-Expression: LicenseRef-NVIDIA-Proprietary", "LicenseRef-NVIDIA-Proprietary"),
        ("License-Expression: any, please\nLicense: ISC License", "ISC"),
        ("License: LGPL-2.1", "LGPL-2.1-only"),
        ("License: Apache 2.0 License", "Apache-2.0"),
        ("License: NVIDIA Proprietary Software", "LicenseRef-NVIDIA-Proprietary"),
        ("License: BSD", "LicenseRef-BSD"),
        ("License: Dual License", "LicenseRef-Dual-License"),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License", "MIT"),
        ("Classifier: License :: OSI Approved :: BSD License", "LicenseRef-BSD"),
        ("Classifier: License :: OSI Approved\nClassifier: Topic :: Text", ""),
        (
            "Classifier: License :: OSI Approved :: MIT License\n"
            "Classifier: License :: OSI Approved :: Apache Software License",
            "Apache-2.0 AND MIT",
        ),
        (
            "License: Copyright (c) 2001-2002 Enthought\n Redistribution and use in source and binary forms\n"
            "Classifier: License :: OSI Approved :: BSD License",
            "LicenseRef-BSD",
        ),
        ("License: " + "x" * 61, ""),
        ("Name: x", ""),
    ],
)
def test_python_licence_from_metadata(headers: str, expected: str) -> None:
    assert (
        spdx.python_licence(f"Metadata-Version: 2.4\n{headers}\n\nLicense: of the description\n".encode()) == expected
    )


def test_python_licence_uses_found_licence_only_as_fallback() -> None:
    assert spdx.python_licence(b"Name: x\n\n", ["MIT"]) == "MIT"
    assert spdx.python_licence(b"Name: x\nLicense: ISC\n\n", ["MIT"]) == "ISC"
    assert spdx.python_licence(b"", []) == ""
    assert spdx.python_licence(b"\xff\xfe no metadata", []) == ""


READABLE = b"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"


@pytest.mark.parametrize(
    ("names", "copyright_file", "expected"),
    [
        (["GPL-2.0-only", "Expat", "public-domain"], READABLE, "GPL-2.0-only AND LicenseRef-public-domain AND MIT"),
        # In prose, names may be first words of sentences.
        (["GPL-2.0-only", "By", "Permission", "This"], b"License: By using it", "GPL-2.0-only"),
        (["Artistic", "This"], b"see /usr/share/common-licenses/Artistic.", "LicenseRef-Artistic"),
        (["MIT OR GPL-2.0-only", "Zlib"], READABLE, "(MIT OR GPL-2.0-only) AND Zlib"),
        ([], READABLE, ""),
        (["By"], b"", ""),
    ],
)
def test_debian_licence(names: list[str], copyright_file: bytes, expected: str) -> None:
    assert spdx.debian_licence(names, copyright_file) == expected


@pytest.mark.parametrize("text", ["", "   ", "((", "MIT AND", "GPL v2 or so", "MIT/X11", "AND"])
def test_expression_of_invalid_text_is_empty(text: str) -> None:
    assert spdx.expression(text) == ""


@pytest.mark.parametrize(("name", "expected"), [("MIT/X11", "LicenseRef-MIT-X11"), ("  ", ""), ("?!", "")])
def test_spdx_name_of_unknown_licence(name: str, expected: str) -> None:
    assert spdx.spdx_name(name) == expected
