"""What is recorded of a state table, with other names, other columns, or marks of migrations: new values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_ckpt.protocol._differences import SETTLED, Facts, Part, keys_of, parts_of, types_of


def with_names(facts: Facts, names: Mapping[str, str], made: Mapping[str, str]) -> Facts:
    """``facts`` with its columns under their new ``names``, whose files have them under the old ones."""
    stored = facts.get("stored", {})
    known = [*keys_of(facts), *types_of(facts)]
    told = {
        **facts,
        "made_of": {names.get(c, c): made.get(names.get(c, c), m) for c, m in facts.get("made_of", {}).items()},
    }
    told["stored"] = {names.get(c, c): stored.get(c, c) for c in known if stored.get(c, c) != names.get(c, c)}
    for part in ("older", "starts"):
        if part in facts:
            told[part] = {names.get(c, c): v for c, v in facts[part].items()}
    for part in ("retyped", "lenient"):
        if part in facts:
            told[part] = sorted(names.get(c, c) for c in facts[part])
    if "keyed_by" in facts:
        told["keyed_by"] = {names.get(c, c): text for c, text in facts["keyed_by"].items()}
    if "results" in facts:
        told["results"] = {r: [names.get(c, c) for c in of] for r, of in facts["results"].items()}
    if "types" in facts:
        told["types"] = {names.get(c, c): t for c, t in facts["types"].items()}
    told["state"] = text_of({names.get(c, c): t for c, t in types_of(facts).items()})
    told["keys"] = text_of({names.get(c, c): t for c, t in keys_of(facts).items()})
    return told


def text_of(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def keyed_by(was: Facts, now: Facts, keys: Collection[str]) -> Facts:
    """``was``, whose ``keys`` hold the values that the query computes for them."""
    if "keyed_by" not in was:
        return was
    texts = now.get("keyed_by", {})
    return {**was, "keyed_by": {**was["keyed_by"], **{k: texts[k] for k in keys if k in texts}}}


def without(was: Facts, columns: set[str]) -> Facts:
    """Of columns that are there under the same names, and mean something else."""
    stored, there = was.get("stored", {}), columns & types_of(was).keys()
    if not there:
        return was
    types = {c: t for c, t in types_of(was).items() if c not in there}
    gone = sorted({*was.get("gone", ()), *(stored.get(c, c) for c in there)})
    made = {c: m for c, m in was["made_of"].items() if c not in there}
    return {**was, "types": types, "state": text_of(types), "gone": gone, "made_of": made}


def settled(facts: Facts, name: str) -> Facts:
    return {**facts, SETTLED: [*facts.get(SETTLED, ()), name]}


def part_called(facts: Facts, name: str) -> Part | None:
    """An aggregate by what it is made of, or the one with a column of this name."""
    parts = parts_of(facts, types_of(facts))
    return next((p for p in parts if p.name == name), None) or next((p for p in parts if name in p.columns), None)


def same_parts(was: Facts, now: Facts) -> list[tuple[Part, Part]]:
    """One goes and one comes of the same making; of several nobody knows which is whose."""
    then, here = types_of(was), types_of(now)
    gone = parts_of(was, [c for c in then if c not in here])
    came = parts_of(now, [c for c in here if c not in then])
    known = {was.get("made_of", {}).get(c) for c in then if c in here}
    return [
        (o, n)
        for n in came
        for o in gone
        if n.function and o.name == n.name and o.name not in known and len(o.columns) == len(n.columns) and o.fits(n)
    ]
