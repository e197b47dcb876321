"""``Sample``: rows that are drawn. Driver; classic Spark."""

from __future__ import annotations

import random
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._java_classes import frame_of
from spark_ckpt.plan.analysed._nodes import Rows, filtered, relation, resolved
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._translation import Translation

JavaObject = Any


def sample(of: Translation, node: JavaObject) -> Rows:
    """Anew with every batch, as all that is random is in Spark's streams; control rows are not drawn."""
    if node.withReplacement():
        raise InvalidInputError(
            "sample(withReplacement=True) is not there on a checkpointed stream: it draws rows several times, "
            "control rows among them; use sample(fraction)"
        )
    rows, least, most = of.rows(node.child()), float(node.lowerBound()), float(node.upperBound())
    # A row has one number: two conditions of rand() would count two.
    drawn = F.exists(F.array(F.rand(_seed(node))), lambda x: (x >= F.lit(least)) & (x < F.lit(most)))
    (condition,) = resolved(frame_of(relation(rows.attributes), of.spark), [drawn])
    return step(of, filtered(condition, relation(rows.attributes)), rows)


def _seed(node: JavaObject) -> int:
    """Some versions of Spark have none where SQL names none."""
    seed = node.seed()
    if isinstance(seed, int):
        return seed
    return int(seed.get()) if seed.isDefined() else random.getrandbits(62)
