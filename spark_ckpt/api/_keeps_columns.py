"""Methods behind which a DataFrame has the same columns. Driver.

Behind a join a name may come twice: such a method is done where the columns have names of their own, and behind it is
known, as in front of it, whose they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def keeps_columns(*columns: str, visible: bool = False, by_all: bool = False) -> Callable[[Method], Method]:
    """Of a DataFrame's method behind which there are the same columns: behind a join, too, it is known whose they are.

    ``columns``: arguments that say some. ``visible``: it looks at all that there are, where names come twice.
    ``by_all``: without a ``subset`` Spark finds those by name, and refuses what comes twice.
    """

    def decorated(method: Method) -> Method:
        signature = inspect.signature(method)

        @wraps(method)
        def done(self: Any, *args: Any, **kwargs: Any) -> Any:
            joined = self._joined
            if joined is None or (visible and not joined.needed):
                return method(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs)
            if by_all and given.arguments.get("subset") is None:
                getattr(self._in_spark(), method.__name__)(*args, **kwargs)  # raises as Spark does
            for name in columns:
                if given.arguments.get(name) is not None:
                    given.arguments[name] = joined.meant(given.arguments[name])
            return joined.through(lambda rows: method(rows, *given.args[1:], **given.kwargs), visible)

        return cast(Method, done)

    return decorated
