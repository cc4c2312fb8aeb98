"""Errors meant for the user's eyes.

Each message says what was asked, what was found and what to do. The command line prints it in one line. Our own bugs
are plain assertions; nothing here knows about models, text or the command line.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from numbers import Integral, Real


class SpecError(Exception):
    """Base of every error that a user can cause and cure."""


class BadOption(SpecError, ValueError):
    """An option has a value that does not exist, or that the chosen method cannot honour."""


class BadInput(SpecError, ValueError):
    """A prompt that cannot be decoded: empty, of the wrong kind, or holding ids outside the vocabulary."""


class OutOfContext(SpecError, ValueError):
    """The prompt does not fit into the model's context."""


class Incompatible(SpecError, ValueError):
    """Two parts do not fit together: a drafter and its target, a model and what a method needs of it."""


class CannotRollBack(Incompatible):
    """The model keeps a state (recurrent layers) that cannot forget rejected drafts."""


class LoadError(SpecError, OSError):
    """A model, tokenizer or drafter could not be loaded: missing, incomplete or corrupt."""


class WriteError(SpecError, OSError):
    """A file could not be written: a full disk, most likely."""


class NumericalError(SpecError, ArithmeticError):
    """The model returned NaN or infinite logits."""


def is_count(value: object, least: int = 0) -> bool:
    """Whether `value` is a whole number, numpy's included, of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_count(name: str, value: object, least: int) -> None:
    """Raises BadOption unless `value` is a whole number, numpy's included, of at least `least`."""
    if not is_count(value, least):
        raise BadOption(f"{name}={shown(value)} is not a whole number of at least {least}; give one")


def as_float(value: object) -> float:
    """A number as a float; NaN for what is no number, or too large for a float."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def check_number(name: str, value: object, within: Callable[[float], bool], allowed: str) -> None:
    """Raises BadOption unless `value` is a number that is `within`; `allowed` says which are."""
    if not within(as_float(value)):
        raise BadOption(f"{name}={shown(value)} will not do; give {allowed}")


def check_probability(name: str, value: object) -> None:
    """Raises BadOption unless `value` is a number from 0 to 1."""
    check_number(name, value, lambda x: 0 <= x <= 1, "a probability, from 0 to 1")


def check_flag(name: str, value: object) -> None:
    """Raises BadOption unless `value` is True or False."""
    if not isinstance(value, bool):
        raise BadOption(f"{name}={shown(value)} is neither true nor false; give one of them")


def shown(value: object) -> str:
    """Any value in one line, short enough for a message."""
    return " ".join(reprlib.repr(value).split())
