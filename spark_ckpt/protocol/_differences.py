"""What keeps a state table from going on with a query, and what is a question to the user.

A column of a state table is found by its name; an aggregate is known by what it is made of. Columns that the query and
the state both have go on if their types do. One that comes begins empty, and one that goes is no longer kept. But where
one goes and one comes that may be the same, nothing is guessed: the message has the lines to write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_ckpt.protocol._state_types import castable, columns_of, fields_gone, lost_fields, same_hash, sql_type, widens

Facts = Mapping[str, Any]
"""What a topology records of a state table; see :class:`spark_ckpt.protocol.records.Topology`."""
SETTLED = "settled"
"""Of a topology that migrations were applied to: what the user said begins empty. Never recorded."""


@dataclass(frozen=True)
class Difference:
    """What keeps a state table from going on. ``lines``: what to write beside the query, one of them. ``table``: of a
    question about a whole table."""

    text: str
    lines: tuple[str, ...] = ()
    table: str = ""


def can_change(was: Facts, now: Facts) -> bool:
    """Whether the columns may come, go and widen: the query says so, and both say how columns are made."""
    return "types" in now and "made_of" in now and "made_of" in was


def types_of(facts: Facts) -> dict[str, str]:
    """The value columns of a state table."""
    found = facts.get("types")
    return dict(found) if found is not None else columns_of(facts.get("state", ""))


def keys_of(facts: Facts) -> dict[str, str]:
    return columns_of(facts.get("keys", ""))


def differences(table: str, was: Facts, now: Facts) -> list[Difference]:
    """What is in the way of going on in ``table``; empty: nothing is."""
    found = [*_keys_differ(table, was, now), *_keyed_otherwise(table, was, now), *_timeouts_differ(table, was, now)]
    if not can_change(was, now):
        return found + _fixed(table, was, now)
    found += _types_differ(table, was, now) + _windows_differ(table, was, now) + questions(table, was, now)
    return found + (_cannot_begin(was, now) + _nothing_goes_on(table, was, now) if not found else [])


def migrate(table: str, *steps: str) -> str:
    """The line to write."""
    return f"ckpt.migrate({table!r}){''.join(f'.{step}' for step in steps)}"


def empty_line(table: str, name: str = "") -> str:
    return migrate(table, f"begin_empty({name!r})" if name else "begin_empty()")


def _fixed(table: str, was: Facts, now: Facts) -> list[Difference]:
    """Of columns that are what they were at first: same columns and types, of the same meaning."""
    if "state" in was and was["state"] != now.get("state", was["state"]):
        text = f"the state schema changed: expected {was['state']}, found {now['state']}"
        return [Difference(text, (empty_line(table),))]
    return [
        Difference(
            f"column {column!r} of its state was made by {then}, and the query makes it by {here}", (empty_line(table),)
        )
        for column, then, here in _made_otherwise(was, now)
    ]


def _made_otherwise(was: Facts, now: Facts) -> list[tuple[str, str, str]]:
    """Columns of both of which both say how they are made. What a user's function makes is not compared."""
    then, here = was.get("made_of", {}), now.get("made_of", {})
    return [(c, then[c], here[c]) for c in then if c in here and not _goes_on_as(then[c], here[c])]


def _goes_on_as(then: str, here: str) -> bool:
    """The first rows of a key are among the first ones: fewer of them are kept from now on, and never more."""
    more, fewer = _first_rows(then), _first_rows(here)
    return then == here or (more[1] == fewer[1] and more[0] > fewer[0] > 0)


def _first_rows(made: str) -> tuple[int, str]:
    """How many of a key's first rows are kept, by which order; 0: it is no such text."""
    number, _, by = made.removeprefix("the first ").partition(" by ")
    return (int(number), by) if number.isdigit() and made.startswith("the first ") else (0, "")


def _keys_differ(table: str, was: Facts, now: Facts) -> list[Difference]:
    if "keys" not in was or was["keys"] == now.get("keys", was["keys"]):
        return []
    then, here = keys_of(was), keys_of(now)
    text = f"the key schema changed: expected {was['keys']}, found {now['keys']}"
    if same_keys(was, now):
        return []
    if list(then.values()) == list(here.values()):
        steps = [f"rename({a!r}, {b!r})" for a, b in zip(then, here, strict=True) if a != b]
        return [Difference(text, (migrate(table, *steps), empty_line(table)))]
    if list(then) == list(here):
        other = next(k for k in then if not same_hash(then[k], here[k]))
        text += f" (keys are found by the hash of their type: cast {other!r} back to {then[other]} in front of groupBy)"
    return [Difference(text, (empty_line(table),))]


def _keyed_otherwise(table: str, was: Facts, now: Facts) -> list[Difference]:
    """Keys of one name and type that are computed otherwise: only the user knows whether they are the same values."""
    if not same_keys(was, now):
        return []
    then, here = was.get("keyed_by", {}), now.get("keyed_by", {})
    return [
        Difference(
            f"key {key!r} was {then[key]}, and is now {here[key]}: whether it is the same value is not known",
            (migrate(table, f"rename({then[key]!r}, {here[key]!r})"), empty_line(table)),
        )
        for key in then
        if then[key] != here.get(key, then[key])
    ]


def same_keys(was: Facts, now: Facts) -> bool:
    then, here = keys_of(was), keys_of(now)
    return list(then) == list(here) and all(same_hash(then[k], here[k]) for k in then)


def _timeouts_differ(table: str, was: Facts, now: Facts) -> list[Difference]:
    if "timeout" not in was or was["timeout"] == now.get("timeout", was["timeout"]):
        return []
    text = f"the kind of time-out changed: expected {was['timeout']}, found {now['timeout']}"
    return [Difference(text, (empty_line(table),))]


def _types_differ(table: str, was: Facts, now: Facts) -> list[Difference]:
    then, here = types_of(was), types_of(now)
    return [
        Difference(
            f"column {c!r} of its state was {then[c]}, and is now {here[c]}, which may not hold its values",
            (*_cast_line(table, c, then[c], here[c]), empty_line(table, c)),
        )
        for c in mistyped(was, now)
    ]


def _cast_line(table: str, column: str, was: str, now: str) -> tuple[str, ...]:
    return (migrate(table, f"cast({column!r}, {sql_type(now)!r})"),) if castable(was, now) else ()


def mistyped(was: Facts, now: Facts) -> list[str]:
    """Columns of both, made alike, of which the query's type may not hold what is there."""
    then, here = types_of(was), types_of(now)
    return [c for c in then if c in here and not _made_differs(was, now, c) and not widens(then[c], here[c])]


def _made_differs(was: Facts, now: Facts, column: str) -> bool:
    then, here = was.get("made_of", {}).get(column), now.get("made_of", {}).get(column)
    return then is not None and here is not None and then != here


def _windows_differ(table: str, was: Facts, now: Facts) -> list[Difference]:
    columns = types_of(was).keys() | types_of(now).keys()
    return [
        Difference(f"key {key!r} was of {then}, and is now of {here}", (empty_line(table),))
        for key, then, here in _made_otherwise(was, now)
        if key not in columns
    ]


# --- questions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """An aggregate, by what it is made of, or a column of which nothing is said, by its name. ``results``: what comes
    out of it, as its user calls that; None: not known."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    results: frozenset[str] | None
    function: str

    def fits(self, other: Part) -> bool:
        """Whether ``other`` could be the same one, under another name."""
        types = zip(self.types, other.types, strict=False)
        same = self.function == other.function and len(self.types) == len(other.types)
        return same and all(widens(then, here) for then, here in types)

    def may_be(self, other: Part) -> bool:
        """Whether it is a question if ``other`` is the same. A name with a bracket is Spark's text of the expression,
        and none that the user gave."""
        if set(self.columns) & set(other.columns):
            return True
        if self.results is None or other.results is None:
            return self.fits(other)
        if self.results & other.results:
            return True
        given = all("(" not in name for name in self.results | other.results)
        return not given and self.fits(other)


def parts_of(facts: Facts, columns: Iterable[str]) -> list[Part]:
    """Of these ``columns`` of a state table; an aggregate may have several."""
    made, types, by_name = facts.get("made_of", {}), types_of(facts), dict[str, list[str]]()
    for column in columns:
        by_name.setdefault(made.get(column, column), []).append(column)
    return [
        Part(
            name,
            tuple(cs),
            tuple(types[c] for c in cs),
            _results(facts, cs),
            name.partition("(")[0] if cs[0] in made else "",
        )
        for name, cs in by_name.items()
    ]


def _results(facts: Facts, columns: Collection[str]) -> frozenset[str] | None:
    if "results" not in facts:
        return None
    return frozenset(r for r, of in facts["results"].items() if set(of) & set(columns))


def changed_parts(was: Facts, now: Facts) -> tuple[list[Part], list[Part]]:
    """Those that go and those that come."""
    then, here = types_of(was), types_of(now)
    gone = [c for c in then if c not in here or _made_differs(was, now, c)]
    came = [c for c in here if c not in then or _made_differs(was, now, c)]
    return parts_of(was, gone), parts_of(now, came)


def questions(table: str, was: Facts, now: Facts) -> list[Difference]:
    """One goes, and one comes that may be the same: only the user knows."""
    gone, came = changed_parts(was, now)
    settled = was.get(SETTLED, ())
    found = []
    for new in came:
        if not settled_in(new, settled):
            old = next(
                (o for o in gone if o.may_be(new) and o.fits(new)), next((o for o in gone if o.may_be(new)), None)
            )
            if old is not None:
                found.append(_question(table, old, new))
    return found + _nested_questions(table, was, now) + _come_back(was, now)


def settled_in(part: Part, settled: Collection[str]) -> bool:
    return part.name in settled or (bool(settled) and set(part.columns) <= set(settled))


def _question(table: str, old: Part, new: Part) -> Difference:
    as_ = sorted((old.results or frozenset()) & (new.results or frozenset()))
    both = f", both for {', '.join(map(repr, as_))}" if as_ else ""
    text = f"{old.name} ({', '.join(old.types)}) goes and {new.name} ({', '.join(new.types)}) comes{both}: whether "
    text += "it is the same value, under another name, or begins anew, is not known"
    keep = (migrate(table, f"rename({old.name!r}, {new.name!r})"),) if old.fits(new) else ()
    return Difference(text, (*keep, empty_line(table, new.name)))


def _nested_questions(table: str, was: Facts, now: Facts) -> list[Difference]:
    then, here = types_of(was), types_of(now)
    lost = [pair for c in then if c in here for pair in lost_fields(then[c], here[c], c)]
    return [
        Difference(
            f"field {old!r} goes and {new!r} comes: whether it is the same value, under another name, is not known",
            (migrate(table, f"rename({old!r}, {new!r})"), empty_line(table, new)),
        )
        for old, new in lost
        if new not in was.get(SETTLED, ()) and old not in was.get("older", {}).get(new, ())
    ]


def _come_back(was: Facts, now: Facts) -> list[Difference]:
    """A struct's field has no other name in files, so one that comes back would have what it had in some rows."""
    then, here = types_of(was), types_of(now)
    came = set[str]().union(*(fields_gone(here[c], then[c], c) for c in then if c in here))
    return [
        Difference(
            f"field {path!r} was in it before, and rows that were not written since have it still: choose another name"
        )
        for path in sorted(came & {*was.get("gone", ())})
    ]


def _cannot_begin(was: Facts, now: Facts) -> list[Difference]:
    then, here, made = types_of(was), types_of(now), now["made_of"]
    known = {was["made_of"].get(c) for c in then} - {None}
    late = [c for c in here if c not in then and c in now.get("from_start", ()) and made.get(c) not in known]
    why = "cannot begin in keys that are there: a null would look like none; ignore nulls"
    return [Difference(f"{made.get(c, c)} {why}") for c in dict.fromkeys(late)]


def _nothing_goes_on(table: str, was: Facts, now: Facts) -> list[Difference]:
    then, here = types_of(was), types_of(now)
    settled = was.get(SETTLED, ())
    if not then or not here or then.keys() & here.keys() or settled:
        return []
    old, new = (", ".join(f"{c} {t}" for c, t in types.items()) for types in (then, here))
    return [Difference(f"nothing of its state would go on: expected some of {old}, found {new}", (empty_line(table),))]
