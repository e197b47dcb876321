"""A real Kafka broker for tests: one KRaft node on loopback and free ports, from the jars of ``org.apache.kafka``.

``scripts/with_env.sh ... --kafka`` fetches the jars. Its data are in a temporary folder. Nobody needs a password at
``bootstrap``; at ``sasl_bootstrap`` it is SASL/PLAIN, with :data:`USER` and :data:`PASSWORD`, or :data:`OTHER` and
:data:`PASSWORD`; at ``secured`` SCRAM over TLS, and at ``mutual`` TLS with a client's certificate.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.certificates import Certificates
from tests.ports import free_port
from tests.servers import Server, ServerProcess, java

USER, OTHER, PASSWORD = "ckpt", "other", "s3cret-pass-word"
_UP_S = 120
_JAVA = ["-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,"
    "SECURED:SASL_SSL,MUTUAL:SSL",
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secured.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.secured.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
    "required;",
    "listener.name.mutual.ssl.client.auth": "required",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.name.sasl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}" user_{OTHER}="{PASSWORD}";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that was killed may register again when the controller takes its last life for over: after nine seconds.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    # By default ten seconds: how often the broker looks for transactions whose time is over.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class KafkaServer(Server):
    """``start()``, then ``new_topic()``, then ``stop()``; ``kill()`` and ``restart()`` keep the data. ``settings`` are
    more of the broker's, as in its ``server.properties``; ``java``: options of its Java."""

    def __init__(self, settings: Mapping[str, str] | None = None, java: Sequence[str] = _JAVA) -> None:
        self._more = dict(settings or {})
        self._options = tuple(java)
        super().__init__()
        self._ports: dict[str, int] = {}
        self.certificates: Certificates

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers``, without a password."""
        return f"127.0.0.1:{self._ports['PLAINTEXT']}"

    @property
    def sasl_bootstrap(self) -> str:
        return f"127.0.0.1:{self._ports['SASL']}"

    @property
    def secured(self) -> str:
        """``bootstrap.servers`` of the listener with SCRAM-SHA-512 over TLS; :meth:`add_scram_user` makes its user."""
        return f"127.0.0.1:{self._ports['SECURED']}"

    @property
    def mutual(self) -> str:
        """``bootstrap.servers`` of the listener that wants a client's certificate."""
        return f"127.0.0.1:{self._ports['MUTUAL']}"

    def add_scram_user(self) -> None:
        """:data:`USER`, with :data:`PASSWORD`."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin = self.admin()  # it must outlive what it was asked for
        made = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        admin.alter_user_scram_credentials([made])[USER].result(_UP_S)

    @property
    def sasl(self) -> dict[str, str]:
        """What a client needs for :attr:`sasl_bootstrap`, as confluent-kafka names it."""
        return {
            "bootstrap.servers": self.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def new_topic(self, partitions: int = 1, config: Mapping[str, str] | None = None, name: str = "") -> str:
        """The name of a new, empty topic."""
        topic = name or f"t-{uuid.uuid4().hex[:12]}"
        admin = self.admin()  # it must outlive what it was asked for
        admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))])[topic].result(_UP_S)
        self._wait(topic)  # made is not yet known to every part of the broker
        return topic

    def start(self) -> KafkaServer:
        if self._root is not None:
            return self
        self._root = Path(tempfile.mkdtemp(prefix="spark-ckpt-kafka-", dir="/tmp"))
        atexit.register(self.stop)
        try:
            self._configure()
            self._format()
            self.restart()
        except BaseException:
            self.stop()
            raise
        return self

    def restart(self) -> None:
        """The broker that was killed, on the same data."""
        assert self._root is not None
        self._process = ServerProcess(self._java("kafka.Kafka", str(self._properties)), self._root)
        self._wait()

    @property
    def _properties(self) -> Path:
        assert self._root is not None
        return self._root / "server.properties"

    def _configure(self) -> None:
        assert self._root is not None
        self._ports = {name: free_port() for name in ("PLAINTEXT", "SASL", "SECURED", "MUTUAL", "CONTROLLER")}
        self.certificates = Certificates(self._root / "certificates")
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        voters = f"1@127.0.0.1:{self._ports['CONTROLLER']}"
        places = {"listeners": listeners, "controller.quorum.voters": voters, "log.dirs": str(self._root / "data")}
        files = {"keystore": self.certificates.server, "truststore": self.certificates.ca}
        trust = {f"ssl.{kind}.location": str(file) for kind, file in files.items()}
        settings = {**_SETTINGS, **places, **trust, **self._more}
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))

    def _format(self) -> None:
        tool = self._java("kafka.tools.StorageTool", "format", "-t", "SparkCkptTestsKafka00A", "-c")
        made = subprocess.run(
            [*tool, str(self._properties)], cwd=self._root, capture_output=True, timeout=_UP_S, check=False
        )
        if made.returncode:
            raise RuntimeError(f"Kafka's storage was not made:\n{made.stdout.decode()}{made.stderr.decode()}")

    def _java(self, *command: str) -> list[str]:
        return [java(), *self._options, "-cp", f"{_jars()}/*", *command]

    def _wait(self, topic: str | None = None) -> None:
        """Until the broker answers, and knows a leader for each partition of ``topic``."""
        assert self._process is not None
        admin = self.admin()

        def answers() -> bool:
            try:
                found = admin.list_topics(topic, timeout=1).topics
            except KafkaException:
                return False
            return topic is None or all(p.leader >= 0 and not p.error for p in found[topic].partitions.values())

        self._process.await_up(answers, _UP_S)


_shared: list[KafkaServer] = []


def shared_kafka() -> KafkaServer:
    """The one broker of this test process, started at first use, and stopped where no test of the next file asks for
    one: it takes a tenth of a core at rest."""
    if not _shared:
        _shared.append(KafkaServer().start())
    return _shared[0]


def uses_shared_kafka(file: Path) -> bool:
    """Whether tests of ``file`` may ask for the shared broker, by its name or its folder's."""
    return "kafka" in f"{file.parent.name}/{file.name}"


def end_shared_kafka(following: Path | None) -> None:
    """``following``: the file of the next test, if there is one."""
    if following is None or not uses_shared_kafka(following):
        while _shared:
            _shared.pop().stop()


def _jars() -> str:
    found = os.environ.get("SPARK_CKPT_KAFKA_JARS") or os.path.expanduser("~/.cache/spark-ckpt/kafka-4.1.0")
    if not os.path.isdir(found):
        raise RuntimeError(f"the tests need Kafka's jars in {found}: `make test` fetches them, or with_env.sh --kafka")
    return found
