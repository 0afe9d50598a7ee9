"""Certificates for servers of tests, signed by a CA of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa


@dataclass(frozen=True)
class Certificate:
    """A server's certificate, its key, and the CA that signed it; files in PEM."""

    ca: Path
    certificate: Path
    key: Path


def make_certificate(
    folder: Path,
    names: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
    until: timedelta = timedelta(days=1),
    key: rsa.RSAPrivateKey | None = None,
) -> Certificate:
    """A CA made for this test and a certificate by it for these names and addresses; key: default: a new one."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), key or ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "berth test CA")])
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])

    def signed(subject: x509.Name, public: Any, extensions: dict[Any, bool]) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + until)
        )
        for extension, critical in extensions.items():
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    alternatives = x509.SubjectAlternativeName([_general_name(each) for each in names])
    made = Certificate(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    made.ca.write_bytes(signed(ca_name, ca_key.public_key(), {x509.BasicConstraints(ca=True, path_length=None): True}))
    made.certificate.write_bytes(signed(name, key.public_key(), {alternatives: False}))
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
