"""From the plan that Spark has analysed to a job: docs/design/front-door.md. Driver; classic Spark.

Every name in such a plan is resolved to an id, and every type and cast is explicit. So nothing here looks a column up
by its name or reads SQL text. The steps, each a function that may be called by itself:

1. :mod:`~spark_ckpt.plan.analysed._rules`: rules of Spark's own bring the plan into the form that streams have.
2. :mod:`~spark_ckpt.plan.analysed.ledger`: says for each class of node what becomes of it.
3. :mod:`~spark_ckpt.plan.analysed.translate`: walks the plan, and makes of each node what the ledger says.
"""
