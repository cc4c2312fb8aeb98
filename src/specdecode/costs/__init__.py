"""What a pass of a model costs on this machine: measured curves of seconds, kept in the cache folder.

Knows the LM protocol and a clock. It knows no drafter and no session, and not why a pass costs what it does.
"""

from .curve import Curve
from .hardware import machine
from .measuring import LONG, QUICK, Plan, measure
from .store import known, of, remember

__all__ = ["LONG", "QUICK", "Curve", "Plan", "known", "machine", "measure", "of", "remember"]
