"""Certificates for servers of tests on loopback: an authority, a server's and a client's, as files in PEM."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CLIENT = "ckpt-client"
"""The name in the client's certificate."""


class Certificates:
    """``ca.pem``, ``server.pem`` (key and certificate), ``client.key`` and ``client.pem`` in ``folder``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.ca, self.server = folder / "ca.pem", folder / "server.pem"
        self.client, self.client_key = folder / "client.pem", folder / "client.key"
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name("tests")
        self.ca.write_bytes(_pem(self._signed(self._name, self._key.public_key(), authority=True)))
        key, certificate = self._made("localhost")
        self.server.write_bytes(key + certificate)
        key, certificate = self._made(CLIENT)
        self.client_key.write_bytes(key)
        self.client.write_bytes(certificate)

    def _made(self, name: str) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return key.private_bytes(*form), _pem(self._signed(_name(name), key.public_key(), authority=False))

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, authority: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.timezone.utc)
        places: list[x509.GeneralName] = [
            x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]  # fmt: skip
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=7))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(places), critical=False)
        )
        return made.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
