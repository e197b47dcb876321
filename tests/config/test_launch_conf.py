"""What Spark's driver was started with, as its command line and its files say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.plain._options import conf_of

SUBMIT = ["java", "-cp", "x", "-Dspark.a=jvm", "-Dspark.b=jvm", "org.apache.spark.deploy.SparkSubmit"]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n\nspark.ckpt.dir   /data/with blanks\nspark.b=default\nspark.c : a\\\n    b\nspark.d\tc\\:d\n"
    )
    return {"SPARK_CONF_DIR": str(tmp_path)}


def test_options_win_over_system_properties_and_those_over_defaults(environ: dict[str, str]) -> None:
    words = [*SUBMIT, "--verbose", "--name", "--conf", "--conf", "spark.a=x=1", "-c", "spark.e=1", "pyspark-shell"]
    found = conf_of([*words, "--conf", "spark.f=the program's own"], environ)
    assert found == {
        "spark.a": "x=1", "spark.b": "jvm", "spark.c": "ab", "spark.d": "c:d", "spark.e": "1",
        "spark.ckpt.dir": "/data/with blanks",
    }  # fmt: skip


def test_a_properties_file_stands_for_the_defaults_unless_both_are_wanted(
    environ: dict[str, str], tmp_path: Path
) -> None:
    other = tmp_path / "job.properties"
    other.write_text("spark.d=other\n")
    assert conf_of(["java", "org.apache.spark.x.Main", "--properties-file", str(other)], environ) == {
        "spark.d": "other"
    }
    both = conf_of(["java", "org.apache.spark.x.Main", f"--properties-file={other}", "--load-spark-defaults"], environ)
    assert both is not None
    assert (both["spark.d"], both["spark.b"]) == ("other", "default")


def test_other_processes_say_nothing_and_missing_files_are_none() -> None:
    assert conf_of(["python", "-m", "pyspark.daemon"], {}) is None
    assert conf_of(["java", "org.apache.spark.deploy.SparkSubmit", "--conf"], {}) == {"": ""}
