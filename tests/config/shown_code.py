"""The code that docstrings show: the blocks behind ``::``."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import spark_ckpt

_BLOCK = re.compile(r"::\n\n((?:(?: {4,}.*)?\n)*(?: {4,}.*))")


def shown_code(documented: object) -> list[str]:
    """The blocks of one docstring."""
    return [textwrap.dedent(block) for block in _BLOCK.findall(inspect.getdoc(documented) or "")]


def members(owner: Any) -> Mapping[str, Any]:
    """The functions of a class or module that its users call, by name; properties by what they call."""
    found = {n: m for n, m in vars(owner).items() if not n.startswith("_")}
    if inspect.ismodule(owner):
        exported = getattr(owner, "__all__", spark_ckpt.__all__)
        return {n: m for n, m in found.items() if inspect.isfunction(m) and n in exported}
    plain = {n: m.fget if isinstance(m, property) else m for n, m in found.items()}
    return {n: f for n, m in plain.items() if inspect.isfunction(f := getattr(m, "__func__", m))}


def all_shown_code(owners: Iterator[Any] | list[Any]) -> dict[str, str]:
    """Every block of ``owners`` and their members, by a name that a function may have."""
    found = {}
    for owner in owners:
        kind = owner.__name__.replace(".", "_")
        for name, documented in {"": owner, **members(owner)}.items():
            for number, block in enumerate(shown_code(documented)):
                found[f"{kind}_{name}_{number}"] = block
    return found
