#!/usr/bin/env bash
# Build the sdist and the wheel into dist/ and check them; then, beside each PySpark that is named, install the wheel into
# an environment of its own and run a job from it:
#
#   scripts/check_release.sh 4.0 4.1 4.2 4.3
set -euo pipefail
cd "$(dirname "$0")/.."

readonly DIST=$PWD/dist
folder=$(mktemp -d)
readonly folder
trap 'rm -rf "$folder"' EXIT

say() { echo "[release] $*" >&2; }

new_env() {
  "${PYTHON:-python3}" -m venv "$1"
  "$1/bin/python" -m pip install --disable-pip-version-check --quiet "${@:2}"
}

cat > "$folder/job.py" <<'EOF'
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.sinks import memory

out = str(Path("out").absolute())  # "out" alone would be a sink's name
spark = SparkSession.builder.master("local[2]").config("spark.ckpt.dir", str(Path("jobs").absolute()))
spark = spark.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.range(100).selectExpr("id", "id % 3 AS k").write.mode("overwrite").parquet("in")
stream = spark_ckpt.enable(spark).readStream.schema("id long, k long").parquet("in")
writer = stream.groupBy("k").agg(F.sum("id").alias("n")).uid("sums").writeStream.format("memory").outputMode("update")
writer = writer.option("path", out).option("mergeKeys", "k").queryName("sums").trigger(availableNow=True)
assert writer.start().awaitTermination(300)
assert sorted(row["n"] for row in memory.read(out).to_pylist()) == [1617, 1650, 1683], memory.read(out)
EOF

new_env "$folder/build" build twine
rm -rf "$DIST"
"$folder/build/bin/python" -m build --outdir "$DIST" . > "$folder/build.log" 2>&1 || { cat "$folder/build.log"; exit 1; }
"$folder/build/bin/twine" check --strict "$DIST"/*
for spark in "$@"; do
  new_env "$folder/$spark" "$DIST"/*.whl "pyspark==$spark.*"
  mkdir "$folder/run-$spark"
  (
    cd "$folder/run-$spark"
    export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1} PYSPARK_PYTHON="$folder/$spark/bin/python"
    "$PYSPARK_PYTHON" ../job.py 2> job.log || { cat job.log; exit 1; }
    "$folder/$spark/bin/spark-ckpt" list jobs sums
  )
  say "the wheel works beside PySpark $("$folder/$spark/bin/python" -c 'import pyspark; print(pyspark.__version__)')"
done
