"""Tables of methods: what there is to choose from, and how a name becomes an object. Knows no method.

A factory is imported when it is first asked for, so a table costs nothing to read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from .errors import BadOption


@dataclass(frozen=True)
class Method:
    """A row of a table. factory: "module:Class" inside the table's package; its parameters are the method's options.

    lossless: whether the output follows the target's law (for a drafter: under every lossless rule).
    needs:    the option that its name alone does not give, such as another model or a file; None where there is none.
    """

    name: str
    summary: str
    lossless: bool
    needs_training: bool
    source: str
    factory: str
    needs: str | None = None


class Table(Mapping[str, Method]):
    """Methods by name. kind: what they are called in messages; package: where their factories live."""

    def __init__(self, kind: str, package: str, methods: Iterable[Method]) -> None:
        self._kind, self._package = kind, package
        self._methods = {method.name: method for method in methods}

    def __getitem__(self, name: str) -> Method:
        return self._methods[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)

    def make(self, name: str, options: Mapping[str, object]) -> Any:
        """The method called `name`. Raises BadOption for a name that is not in the table, for an option that the method
        has not, and for one that it needs and was not given."""
        if not isinstance(name, str) or name not in self._methods:
            raise BadOption(f"{self._kind} {name!r} does not exist; choose one of: {', '.join(self)}")
        module, _, attribute = self._methods[name].factory.partition(":")
        factory = getattr(import_module(f".{module}", self._package), attribute)
        parameters = signature(factory).parameters
        needed = [option for option, p in parameters.items() if p.default is Parameter.empty]
        for problem, wrong in (
            ("has no option", [option for option in options if option not in parameters]),
            ("needs the option", [option for option in needed if option not in options]),
        ):
            if wrong:
                raise BadOption(
                    f"{self._kind} {name!r} {problem} {', '.join(map(repr, wrong))}; "
                    f"its options are: {', '.join(parameters) or 'none'}"
                )
        return factory(**options)


def option_value(text: str) -> Any:
    """An option's value as users write it: a number, a string, true, false or null as JSON has them; any other text is
    itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, list | dict) else value
