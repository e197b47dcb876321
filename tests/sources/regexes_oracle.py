"""What Java makes of generated patterns, into a file: ``python -m tests.sources.regexes_oracle``."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.sources.globs_oracle import answers_of

RECORDED = Path(__file__).with_name("regexes_of_java.json")
TEXTS = [
    *("a", "b", "c", "d", "x", "A", "B", "0", "7", "-", "_", ".", "^", "&", "]", "[", "*", "ab", "abc", "t-a", "t-b"),
    *("tx", "orders", "orders-eu", "my.orders", "aab", "abab", "xax", "a-c", "a.b", "AB", "z9_", "0a", "b-"),
]  # fmt: skip
MORE_TEXTS = ["ä", "aä", "é-b", "\u2028", "a\n", "b\r\n", "a\nb", " ", "\t", "\U0001d4b3", "\u212a", "\u017f"]
"""For patterns that search in any text."""
_ATOMS = [
    *("a", "b", "c", "x", "t", "-", "\\.", ".", "\\d", "\\w", "\\W", "\\s", "\\-", "]", "}", "\\\\", "ab", "orders"),
    *("[ab]", "[^a]", "[a-c]", "[a-c&&b-z]", "[ab[x]]", "[a-z&&[^b]]", "\\p{Alpha}", "\\P{Lower}", "\\Qa.b\\E"),
    *("\\x61", "(?:a|b)", "(a)", "(ab|c)", "(?=a)", "(?!b)", "(?<=a)", "(?<!x)", "(?<n>b)", "(?i:B)", "\\Q-"),
    *("(a|)", "\\u0062"),
]  # fmt: skip
_SIGNS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{2,1}", "{", "++", "{0}", "{1,}"]
_PLACES = ["^", "$", "\\b", "\\B", "\\A", "\\z", "\\Z", "|", "(", ")", "(?i)", "\\", "\\1", "\\h", "(?s)", "(?>a)"]
_IN_CLASS = [
    *("a", "b", "c", "x", "z", "a-c", "b-z", "0-9", "\\d", "\\w", "\\D", "\\S", "-", "^", "&", "&&", "&&", "[", "]"),
    *("]", "[b]", "[^b]", "[a-c&&b]", "\\-", "\\]", "\\[", "\\p{Alpha}", "\\P{Digit}", "\\x41", ".", "*", " "),
    *("[x[y]]", "a-"),
]  # fmt: skip


def _class(chosen: random.Random) -> str:
    inside = "".join(chosen.choice(_IN_CLASS) for _ in range(chosen.randint(1, 5)))
    return f"[{chosen.choice(['', '', '^'])}{inside}]"


def _sequence(chosen: random.Random) -> str:
    parts = []
    for _ in range(chosen.randint(1, chosen.randint(1, 4))):
        kind = chosen.random()
        atom = chosen.choice(_PLACES) if kind < 0.15 else _class(chosen) if kind < 0.4 else chosen.choice(_ATOMS)
        if kind > 0.9:
            atom = f"{chosen.choice(['(', '(?:'])}{_sequence(chosen)}{chosen.choice(['', '|a', '|'])})"
        parts.append(atom + (chosen.choice(_SIGNS) if chosen.random() < 0.3 else ""))
    return "".join(parts)


def patterns(seed: int, count: int) -> list[str]:
    chosen = random.Random(seed)
    return sorted({chosen.choice(["", "", "", "(?i)"]) + _sequence(chosen) for _ in range(count)})


def main() -> None:
    wanted = patterns(7, 3200)
    answers = answers_of("RegexesOfJava.java", [{"pattern": p, "texts": TEXTS + MORE_TEXTS} for p in wanted])
    lines = [json.dumps([p, a]) for p, a in zip(wanted, answers, strict=True)]
    RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
