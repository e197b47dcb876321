"""From the relations of Spark Connect's client to a job: docs/design/front-door.md. Driver; Spark Connect.

The client has the tree that the user wrote, without types and ids. So names and plan ids stay as they are: a relation
is copied around another child, and the server resolves it. Schemas come from the server. What becomes of a relation is
what the ledger says of Spark's node of that kind.
"""
