"""Stand-ins for tests. They meet the protocols of `models.lm` and `drafters`, and assert what others owe them.

Words as in the fault cases: T is tiny("llama", 0) and D tiny("llama", 1); SCRIPT is ScriptLM, DIST is DistLM; ORACLE,
ANTI, MIX and FIX are oracle, anti, mix and fix; BASE is plain.
"""

from .clocks import Clock, Slow, TimedLM
from .decoding import decode, make_session, measured, plain, primed
from .drafters import Turn, Watched, anti, chancy, drawn_tree, fix, mix, oracle, stub, top_tree
from .lms import BranchLM, DistLM, Pass, ScriptLM, Spy, StubCache, StubLM, point_mass, torn
from .tiny import DENSE, TINY, dense, quantised, tiny

__all__ = [
    "DENSE",
    "TINY",
    "BranchLM",
    "Clock",
    "DistLM",
    "Pass",
    "ScriptLM",
    "Slow",
    "Spy",
    "StubCache",
    "StubLM",
    "TimedLM",
    "Turn",
    "Watched",
    "anti",
    "chancy",
    "decode",
    "dense",
    "drawn_tree",
    "fix",
    "make_session",
    "measured",
    "mix",
    "oracle",
    "plain",
    "point_mass",
    "primed",
    "quantised",
    "stub",
    "tiny",
    "top_tree",
    "torn",
]
