"""Options ``kafka.*`` as Spark has them, with the names of Kafka's Java client, for librdkafka. Any process."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_ckpt.errors import ConfigError
from spark_ckpt.redaction import redact, secret_values

PREFIX = "kafka."

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_MEANINGLESS = ("max.poll.records", "default.api.timeout.ms")
"""They size or time calls of the Java client which librdkafka does not make."""
_JAAS = "sasl.jaas.config"
_JAAS_VALUE = re.compile(r'(\w+)\s*=\s*(?:"([^"]*)"|([^\s;]+))')
_PASSWORD_MODULES = ("PlainLoginModule", "ScramLoginModule")


def client_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The ``kafka.*`` options by Kafka's names, in lower case, and the other options."""
    lower = {key: key.lower() for key in options}
    ours = {low[len(PREFIX) :]: options[key] for key, low in lower.items() if low.startswith(PREFIX)}
    return ours, {key: value for key, value in options.items() if not lower[key].startswith(PREFIX)}


def librdkafka_conf(given: Mapping[str, str]) -> dict[str, str]:
    """The configuration of librdkafka for what Kafka's Java client calls ``given``; its own names are fine, too.

    Raises ``ConfigError`` for what librdkafka cannot do, naming what it can. No value is in a message.
    """
    conf: dict[str, str] = {}
    for name, value in given.items():
        if name == _JAAS:
            conf.update(_login(value))
        elif name.startswith(("ssl.truststore.", "ssl.keystore.")) and name not in _RENAMED:
            conf.update(_store(name, value, given))
        elif name == "ssl.endpoint.identification.algorithm":
            conf[name] = value or "none"
        elif name not in _MEANINGLESS:
            conf[_RENAMED.get(name, name)] = value
    return conf


def secrets_of(conf: Mapping[str, str]) -> list[str]:
    """The values that no message may hold."""
    return secret_values(conf)


def without_secrets(text: str, conf: Mapping[str, str]) -> str:
    return redact(text, secrets_of(conf))


def is_tls_refusal(name: str, text: str) -> bool:
    """Whether an error of librdkafka, by name and text, says that broker and client do not trust each other, or do not
    both speak TLS. A broker that goes down in the middle of a handshake is an outage."""
    return (name == "_SSL" and "Disconnected" not in text) or (name == "_TRANSPORT" and "SSL alert" in text)


def _login(jaas: str) -> dict[str, str]:
    """Java's login module of user and password, as librdkafka's two settings."""
    if not any(module in jaas for module in _PASSWORD_MODULES):
        raise ConfigError(
            f"option 'kafka.{_JAAS}': expected PlainLoginModule or ScramLoginModule with username and password, found "
            "another; for others set librdkafka's own options, such as kafka.sasl.kerberos.keytab and "
            "kafka.sasl.oauthbearer.method"
        )
    values = {name: quoted or plain for name, quoted, plain in _JAAS_VALUE.findall(jaas)}
    if not {"username", "password"} <= values.keys():
        raise ConfigError(f'option \'kafka.{_JAAS}\': expected username="..." and password="...", found not both')
    return {"sasl.username": values["username"], "sasl.password": values["password"]}


def _store(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """A trust store in PEM and a key store in PKCS12 are what librdkafka reads."""
    kind = given.get(f"{name.rsplit('.', 1)[0]}.type", "JKS").upper()
    if name == "ssl.truststore.location" and kind == "PEM":
        return {"ssl.ca.location": value}
    if name in ("ssl.keystore.location", "ssl.keystore.password") and kind == "PKCS12":
        return {name: value}
    if name.endswith(".type") and kind == ("PEM" if "truststore" in name else "PKCS12"):
        return {}
    raise ConfigError(
        f"option 'kafka.{name}': expected a trust store of type PEM and a key store of type PKCS12, which librdkafka "
        f"reads (kafka.ssl.truststore.type, kafka.ssl.keystore.type), found type {kind}; convert it with keytool and "
        "openssl, or set kafka.ssl.ca.location, kafka.ssl.certificate.location and kafka.ssl.key.location"
    )
