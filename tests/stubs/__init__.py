"""Stand-ins for tests. They meet the protocols of `models.lm` and `drafters`, and assert what others owe them.

Words as in the fault cases: T is tiny("llama", 0) and D tiny("llama", 1); SCRIPT is ScriptLM, DIST is DistLM; ORACLE,
ANTI, MIX and FIX are oracle, anti, mix and fix; BASE is plain.
"""

from .decoding import decode, make_session, measured, plain, primed
from .drafters import Turn, Watched, anti, drawn_tree, fix, mix, oracle, stub, top_tree
from .lms import BranchLM, DistLM, Pass, ScriptLM, Spy, StubCache, StubLM, point_mass, torn
from .tiny import TINY, tiny

__all__ = [
    "TINY",
    "BranchLM",
    "DistLM",
    "Pass",
    "ScriptLM",
    "Spy",
    "StubCache",
    "StubLM",
    "Turn",
    "Watched",
    "anti",
    "decode",
    "drawn_tree",
    "fix",
    "make_session",
    "measured",
    "mix",
    "oracle",
    "plain",
    "point_mass",
    "primed",
    "stub",
    "tiny",
    "top_tree",
    "torn",
]
