"""A plugin of mypy's: the types of what ``enable`` adds to PySpark's DataFrames and grouped data.

In mypy's configuration: ``plugins = ["spark_ckpt.mypy"]``. ``df.writeStream`` is then a ``CkptDataStreamWriter`` for
mypy, whatever ``df`` is: it cannot see which streams a DataFrame begins with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mypy.nodes import ARG_STAR, ARG_STAR2, Argument, FuncDef, MypyFile, TypeInfo, Var
from mypy.plugin import AttributeContext, ClassDefContext, MethodSigContext, Plugin
from mypy.plugins.common import add_method_to_class
from mypy.types import AnyType, CallableType, FunctionLike, Instance, Type, TypeOfAny

_ADDED, _UIDS = "spark_ckpt.plan.grouped_methods", "spark_ckpt.plan.analysed.uids"
_READ = (_ADDED, _UIDS, "spark_ckpt.api._on_dataframes")
"""Modules whose types are known when a user's file is looked at."""
_DATAFRAME, _GROUPED = "pyspark.sql.dataframe.DataFrame", "pyspark.sql.group.GroupedData"
_METHODS = ("aggregate", "applyInArrowWithState", "topN")


class Added(Plugin):
    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        return [(10, name, -1) for name in _READ] if file.fullname == "spark_ckpt" else []

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        found = {f"{_DATAFRAME}.uid": _uid, f"{_DATAFRAME}.writeStream": _writer}
        return found.get(fullname)

    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        return _with_methods if fullname == _GROUPED else None

    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        owner, _, name = fullname.rpartition(".")
        return partial(_signature, name) if owner == _GROUPED and name in _METHODS else None


def _with_methods(ctx: ClassDefContext) -> None:
    """They are there. What they take is looked up when one is called: now its types are not analysed yet."""
    anything = AnyType(TypeOfAny.special_form)
    for name in _METHODS:
        given = [Argument(Var(n, anything), anything, None, kind) for n, kind in (("a", ARG_STAR), ("k", ARG_STAR2))]
        add_method_to_class(ctx.api, ctx.cls, name, given, anything)


def _signature(name: str, ctx: MethodSigContext) -> FunctionLike:
    return _bound(_named(ctx.api, _ADDED, name)) or ctx.default_signature


def _uid(ctx: AttributeContext) -> Type:
    return _bound(_named(ctx.api, _UIDS, "with_uid")) or ctx.default_attr_type


def _writer(ctx: AttributeContext) -> Type:
    found = _named(ctx.api, "spark_ckpt.api.write", "CkptDataStreamWriter")
    return Instance(found, []) if isinstance(found, TypeInfo) else ctx.default_attr_type


def _named(api: Any, module: str, name: str) -> Any:
    found = api.modules.get(module)
    return found.names[name].node if found is not None else None


def _bound(function: Any) -> CallableType | None:
    """Its type behind the first parameter."""
    if not isinstance(function, FuncDef) or not isinstance(function.type, CallableType):
        return None
    kind = function.type
    return kind.copy_modified(arg_types=kind.arg_types[1:], arg_kinds=kind.arg_kinds[1:], arg_names=kind.arg_names[1:])


def plugin(_version: str) -> type[Plugin]:
    """What mypy asks for."""
    return Added
