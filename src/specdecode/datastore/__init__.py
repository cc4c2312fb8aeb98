"""Texts kept to be searched: token ids with a suffix array, in memory or in a memory-mapped file.

`array` sorts and searches, `store` is the file, `texts` makes ids of files. Knows no model, session or draft.
"""

from __future__ import annotations

from .array import LONGEST, SEPARATOR, SuffixArray
from .store import Store
from .texts import fingerprint, tokenise

__all__ = ["LONGEST", "SEPARATOR", "Store", "SuffixArray", "fingerprint", "tokenise"]
