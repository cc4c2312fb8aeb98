"""What the texts of retrieval cost: building a store, looking up and drafting; and the automaton of a session.

`python bench/datastore.py [--tokens N] [--model M]`. The texts are the sources of this Python's own library, again and
again where they do not suffice; look-ups are of places in modules that were left out, whose next tokens also tell how
often a match of each length is right. Prints figures, then one JSON line. Knows no model, only a tokenizer.
"""

from __future__ import annotations

import argparse
import json
import random
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from specdecode.constraints import Filters
from specdecode.datastore import LONGEST, Store, fingerprint, tokenise
from specdecode.drafters.automaton import SuffixAutomaton
from specdecode.drafters.rest import Rest, Retrieving
from specdecode.drafters.suffix import Recalling, Suffix
from specdecode.models.loading import load_tokenizer
from specdecode.sampling import Argmax, Sampling
from specdecode.session import Session
from specdecode.stopping import Stopping
from specdecode.types import Budget, Prompt

T = TypeVar("T")

LEFT_OUT = 20  # one module in so many
LOOKUPS = 2000
TEXT = 3000  # tokens of a session


def timed(figures: dict[str, Any], name: str, make: Callable[[], T]) -> T:
    started = perf_counter()
    made = make()
    figures[name] = round(perf_counter() - started, 3)
    return made


def sources() -> list[Path]:
    """The library's modules that are UTF-8, without tests."""
    found = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if not {"test", "tests", "site-packages", "lib2to3"} & set(path.parts):
            try:
                path.read_text("utf-8")
            except UnicodeDecodeError:
                continue
            found.append(path)
    return found


def build(tokens: int, model: str | None, figures: dict[str, Any]) -> tuple[Store, list[list[int]]]:
    """A store of so many tokens, by way of a file, and the modules left out."""
    tokenizer = timed(figures, "load_tokenizer_s", lambda: load_tokenizer(model))
    paths = sources()
    kept = [path for i, path in enumerate(paths) if i % LEFT_OUT]
    documents: list[Any] = []

    def read() -> None:
        left = tokens
        for ids in chain.from_iterable(tokenise(kept, tokenizer) for _ in count()):
            documents.append(ids[:left])
            left -= len(documents[-1])
            if left == 0:
                return

    timed(figures, "tokenise_s", read)
    store = timed(figures, "sort_s", lambda: Store.of(documents, fingerprint(tokenizer)))
    with tempfile.TemporaryDirectory() as folder:
        timed(figures, "write_s", lambda: store.write(Path(folder, "store")))
        figures["file_mb"] = round(Path(folder, "store").stat().st_size / 1e6, 1)
        store = timed(figures, "open_s", lambda: Store.open(Path(folder, "store")))
    return store, [ids.tolist() for ids in tokenise(paths[::LEFT_OUT], tokenizer)]


def look_up(store: Store, modules: Sequence[Sequence[int]], figures: dict[str, Any]) -> dict[int, tuple[int, float]]:
    """Times look-ups; by length of the match, how many there were and how often what followed it most was right."""
    rng = random.Random(0)
    seconds, right = [], defaultdict(list)
    for _ in range(LOOKUPS):
        ids = rng.choice([ids for ids in modules if len(ids) > LONGEST])
        at = rng.randrange(LONGEST, len(ids))
        context = list(ids[at - LONGEST : at])
        started = perf_counter()
        found = store.array.matches(context, 1, 32)
        seconds.append(perf_counter() - started)
        for length, where in found[:1]:
            said, counts = np.unique([row[0] for row in store.array.after(where[:64], 1)], return_counts=True)
            right[length].append(said[counts.argmax()] == ids[at])
    figures["look_up_us"] = round(1e6 * median(seconds), 1)
    return {length: (len(hits), round(sum(hits) / len(hits), 2)) for length, hits in sorted(right.items())}


def draft(store: Store, modules: Sequence[Sequence[int]], figures: dict[str, Any]) -> None:
    """Times drafts of up to 32 nodes behind each token of a text, and what reading it takes the automaton."""
    text = next(list(ids[:TEXT]) for ids in modules if len(ids) >= TEXT)
    started = perf_counter()
    SuffixAutomaton(text, LONGEST + 1).longest()
    figures["automaton_us_per_token"] = round(1e6 * (perf_counter() - started) / len(text), 2)
    for name in ("rest", "suffix"):
        session = Session(
            Prompt(tuple(text[:1])), Filters(Sampling(), prompt_length=1, vocab=1 << 20), Argmax(), Stopping(TEXT)
        )
        drafting: Any = (
            Retrieving(Rest(store, k=32, floor=0.02, width=8), [session], 1 << 20)
            if name == "rest"
            else Recalling(Suffix(k=32, floor=0.02, width=8), [session], 1 << 20)
        )
        seconds, nodes = [], []
        for token in text[1:]:
            started = perf_counter()
            (made,) = drafting.draft([0], [Budget(32, 32)])
            seconds.append(perf_counter() - started)
            nodes.append(len(made))
            session.tokens.append(token)
        full = [s for s, n in zip(seconds, nodes, strict=True) if n == 32]
        figures[f"{name}_draft_us"] = round(1e6 * median(seconds), 1)
        figures[f"{name}_draft_of_32_us"] = round(1e6 * median(full), 1) if full else None
        figures[f"{name}_nodes"] = round(sum(nodes) / len(nodes), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--model", default=None)
    asked = parser.parse_args()
    figures: dict[str, Any] = {"tokens": asked.tokens}
    store, modules = build(asked.tokens, asked.model, figures)
    right = look_up(store, modules, figures)
    draft(store, modules, figures)
    for name, value in figures.items():
        print(f"{name:24} {value}")
    print("length of the match: look-ups, share of them whose likeliest next token was right")
    for length, (times, share) in right.items():
        print(f"{length:6} {times:6} {share:6.2f}")
    print(json.dumps({**figures, "right": right}))


if __name__ == "__main__":
    main()
