"""Of the sinks' commits."""

from __future__ import annotations

from mutations.mutation import Mutation

_MEMORY, _FILES, _SQL = "sinks/memory.py", "sinks/files.py", "sinks/sql/sink.py"
_TOGETHER, _DELIVERIES = "sinks/together.py", "sinks/deliveries.py"

MUTATIONS = (
    Mutation(
        _MEMORY,
        "what is missing is not committed",
        "missing = [f for f in files if not (self.root / _STAGED / f).exists()]",
        "missing: list[str] = []",
    ),
    Mutation(
        _MEMORY, "what is committed is not aborted", "            if file not in committed:\n", "            if True:\n"
    ),
    Mutation(
        _FILES,
        "a second commit changes nothing",
        "        if files.exists(manifest):\n            recorded",
        "        if False:\n            recorded",
    ),
    Mutation(
        _FILES,
        "other contents are told",
        "            staging.check_same_life(manifest, permit, sink, recorded, found)\n",
        "",
    ),
    Mutation(
        _FILES, "what is missing is not committed", "        self._check_present(files, root, staged, names)\n", ""
    ),
    Mutation(
        _SQL, "the ledger says that it is done", "        connection.execute(sa.insert(self._ledger), entry)\n", ""
    ),
    Mutation(_DELIVERIES, "what is missing is not made ready", "            if missing:\n", "            if False:\n"),
    Mutation(_TOGETHER, "what a sink raised is told", "        errors[group[i]] = error\n", "        pass\n"),
)
