"""A package index as a company has one: over https, with a certificate of its own CA, and with a login."""

import base64
import datetime
import hashlib
import http.server
import io
import ipaddress
import ssl
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

LOGIN = "reader:pa55word"


def wheel(name: str, source: str) -> bytes:
    """A wheel of one module in version 1.0, as pip takes it."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(text)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return packed.getvalue()


@dataclass(frozen=True)
class PackageIndex:
    """url: what PIP_INDEX_URL says, the login in it. shown: the same as a log may show it. ca: the certificate of the
    CA, a file. asked: the paths of all requests with the right login, in order.
    """

    url: str
    shown: str
    ca: Path
    asked: list[str]


class _Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments: object, asked: list[str], **named: object) -> None:
        self.asked = asked
        super().__init__(*arguments, **named)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Basic {base64.b64encode(LOGIN.encode()).decode()}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.asked.append(self.path)
        super().do_GET()

    def end_headers(self) -> None:
        if self.path.endswith(".whl"):
            self.send_header("Cache-Control", "max-age=365000000, immutable")  # as PyPI says of its files
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def package_index(folder: Path, modules: Mapping[str, str], host: str = "127.0.0.1") -> Iterator[PackageIndex]:
    """An index of a wheel for each module, name → source, on `host`, an address of this machine's."""
    pages = folder / "index"
    for name, source in modules.items():
        page = pages / "simple" / name.replace("_", "-")
        page.mkdir(parents=True)
        (page / f"{name}-1.0-py3-none-any.whl").write_bytes(wheel(name, source))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_certificate(folder, host))
    asked: list[str] = []
    handler = partial(_Handler, directory=str(pages), asked=asked)
    with http.server.ThreadingHTTPServer((host, 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        place = f"{host}:{server.server_port}/simple"
        yield PackageIndex(f"https://{LOGIN}@{place}", f"https://***@{place}", folder / "ca.pem", asked)
        server.shutdown()
        thread.join()


def _certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """A CA, whose certificate goes to ca.pem, and what it signed for the host: certificate and key, both files."""
    ca, ca_key = _signed("the company's CA", None, None, x509.BasicConstraints(ca=True, path_length=None))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    certificate, key = _signed(host, ca, ca_key, names)
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    (folder / "server.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "server.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "server.pem", folder / "server.key"


def _signed(
    name: str,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey | None,
    extension: x509.ExtensionType,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(
        issuer_name=issuer.subject if issuer else subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(days=1),
        not_valid_after=now + datetime.timedelta(days=1),
    ).add_extension(extension, critical=issuer is None)
    return builder.sign(issuer_key or key, hashes.SHA256()), key
