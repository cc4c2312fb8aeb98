"""What the engine costs beside the passes of the model. Prints a table of ratios, then one JSON line.

Run on an otherwise idle machine: `make bench`, or `python bench/engine_cost.py [--only NAME] [--rounds N]`. Every
figure is a ratio inside one run, its arms interleaved, medians over rounds; nothing here decides a test.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psutil
import torch

import specdecode as sd
from specdecode.constraints import Filters
from specdecode.drafters import Drafter
from specdecode.drafters.lm import DraftLM
from specdecode.drafters.ngram import Ngram
from specdecode.drafters.null import Null
from specdecode.engine import Generation
from specdecode.metrics import Metrics
from specdecode.models.lm import LM, read
from specdecode.sampling import Argmax, Sampling
from specdecode.session import Session
from specdecode.stopping import Stopping
from specdecode.types import Draft, Prompt, Row
from specdecode.verify import make_rule

STORY = (
    "The lighthouse keeper climbed the stairs every evening to light the lamp. From the top she could see the harbour, "
    "the fishing boats coming home, and the grey line where the sea met the sky. Her grandfather had kept the same "
    "lamp, and his notebook still lay on the desk: wind, weather, passing ships. She wrote her own lines below his, "
    "in the same careful hand, and wondered who would read them when the lamp went dark for good."
)
REWRITE = f"Repeat the following text word for word, and change nothing:\n\n{STORY}"
CHAT = "Explain why the sky is blue, and why sunsets are red, to a curious child."


@cache
def model() -> Any:
    return sd.load()


def chat_ids(text: str) -> tuple[int, ...]:
    return tuple(model().chat_prompt(text))


def long_ids(length: int) -> tuple[int, ...]:
    """A prompt of real text, repeated up to `length` tokens."""
    ids = model().tokenizer.encode(STORY + "\n")
    return tuple((ids * (length // len(ids) + 1))[:length])


def session(ids: Sequence[int], limit: int) -> Session:
    filters = Filters(Sampling(), prompt_length=len(ids), vocab=model().lm.vocab)
    return Session(Prompt(tuple(ids)), filters, Argmax(), Stopping(max_new_tokens=limit))


@dataclass(frozen=True)
class Run:
    tokens: list[int]
    seconds: float  # decoding only
    metrics: Metrics


def decode(drafter: Drafter, ids: Sequence[int], n: int, limit: int | None = None, lm: LM | None = None) -> Run:
    """Decode `n` tokens greedily, with `limit` as the number that was asked for."""
    one = session(ids, limit or n)
    generation = Generation(lm or model().lm, drafter, [one], [make_rule("greedy")])
    started = time.perf_counter()
    while generation.active and len(one.new_tokens) < n:
        generation.step()
    return Run(one.new_tokens[:n], time.perf_counter() - started, Metrics.from_records(one.records))


def interleave(arms: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each arm, one warm-up and then `rounds` rounds in turn."""
    for arm in arms.values():
        arm()
    out: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            out[name].append(arm())
    return out


def ratio(times: dict[str, list[float]], over: str, under: str) -> dict[str, float]:
    """Median and spread of the per-round ratio, which a slow phase of the machine hits on both sides."""
    each = [a / b for a, b in zip(times[over], times[under], strict=True)]
    return {"ratio": statistics.median(each), "low": min(each), "high": max(each)}


def outside_passes(rounds: int) -> dict[str, float]:
    """Share of a step spent outside model passes, prompt lookup with k=6."""
    shares = []
    for _ in range(rounds + 1):
        m = decode(Ngram(k=6), chat_ids(REWRITE), 96).metrics
        shares.append((m.total_s - m.target_s) / m.total_s)
    return {"ratio": statistics.median(shares[1:]), "low": min(shares[1:]), "high": max(shares[1:])}


def null_against_upstream(rounds: int) -> dict[str, float]:
    """Speed of the null drafter over upstream generate, same weights and dtype, prefill included in both."""
    hf, ids = model().lm.model, chat_ids(CHAT)
    inputs = torch.tensor([ids])

    def upstream() -> float:
        started = time.perf_counter()
        hf.generate(
            inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=64, min_new_tokens=64
        )
        return time.perf_counter() - started

    def ours() -> float:
        started = time.perf_counter()
        decode(Null(), ids, 64)
        return time.perf_counter() - started

    return ratio(interleave({"upstream": upstream, "ours": ours}, rounds), "upstream", "ours")


def lookup_on_rewrite(rounds: int) -> dict[str, float]:
    """Speed of prompt lookup over plain decoding on a prompt that asks for its own text."""
    ids = chat_ids(REWRITE)
    assert decode(Null(), ids, 96).tokens == decode(Ngram(), ids, 96).tokens
    arms = {"plain": lambda: decode(Null(), ids, 96).seconds, "lookup": lambda: decode(Ngram(), ids, 96).seconds}
    return ratio(interleave(arms, rounds), "plain", "lookup")


class Recorder:
    """An LM that remembers its passes, so that they can be run again with nothing around them."""

    def __init__(self, lm: LM) -> None:
        self.lm, self.calls = lm, []
        self.vocab, self.context, self.n_layers, self.capabilities = lm.vocab, lm.context, lm.n_layers, lm.capabilities

    def open(self, prompts: Sequence[Prompt]) -> Any:
        return self.lm.open(prompts)

    def score(self, cache: Any, rows: Sequence[Row], **options: Any) -> Any:
        if options.get("logits", True):
            self.calls.append((id(cache), cache.lengths[0], rows, options))
        return self.lm.score(cache, rows, **options)


def self_drafting(rounds: int) -> dict[str, float]:
    """Time of the target drafting for itself (k=3, everything accepted) over that of the same passes alone."""
    ids = chat_ids(CHAT)
    recorder = Recorder(model().lm)
    run = decode(DraftLM(recorder, k=3), ids, 64, lm=recorder)
    assert run.metrics.accepted >= 3 * (run.metrics.steps - 1), "the target must accept its own drafts"
    calls = recorder.calls

    def passes() -> float:
        lm = model().lm
        caches = {owner: lm.open([Prompt(ids)]) for owner in {call[0] for call in calls}}
        for fresh in caches.values():
            read(lm, fresh, {0: ids[:-1]})
        started = time.perf_counter()
        for owner, length, rows, options in calls:
            cache = caches[owner]
            if cache.lengths[0] < length:
                cache.keep(0, range(length - cache.lengths[0]))
            lm.score(cache, rows, **options)
        return time.perf_counter() - started

    arms = {"passes": passes, "engine": lambda: decode(DraftLM(model().lm, k=3), ids, 64).seconds}
    return ratio(interleave(arms, rounds), "engine", "passes")


def limit_asked_for(rounds: int) -> dict[str, float]:
    """Speed of 48 tokens with a limit of 8,000 over the same 48 with a limit of 48."""
    ids = chat_ids(CHAT)
    arms = {str(limit): lambda limit=limit: decode(Ngram(), ids, 48, limit).seconds for limit in (48, 8000)}
    return ratio(interleave(arms, rounds), "48", "8000")


def memory_growth(rounds: int) -> dict[str, float]:
    """MiB that resident memory grows over 2,000 tokens: in 20 answers of 100, and in one answer beyond its own
    cache."""
    process, ids = psutil.Process(), chat_ids(CHAT)

    def resident() -> float:
        gc.collect()
        return process.memory_info().rss / 2**20

    for _ in range(3):
        decode(Ngram(), ids, 100)
    before = resident()
    for _ in range(20):
        decode(Ngram(), ids, 100)
    answers = resident() - before
    one = session(ids, 2001)
    generation = Generation(model().lm, Ngram(), [one], [make_rule("greedy")])
    generation.step()
    before, held = resident(), generation._cache.nbytes / 2**20
    while len(one.new_tokens) < 2000:
        generation.step()
    cache_mib = generation._cache.nbytes / 2**20 - held
    return {"ratio": answers, "one_answer": resident() - before, "its_cache": cache_mib}


class Perfect:
    """A drafter that always knows the next k tokens, so that every step emits k + 1."""

    name, taps = "perfect", ()

    def __init__(self, tokens: Sequence[int], k: int) -> None:
        self.tokens, self.k = tokens, k

    def begin(self, sessions: Sequence[Session], target: LM, cache: Any) -> Perfect:
        self.session = sessions[0]
        return self

    def draft(self, rows: Sequence[int], budgets: Sequence[Any]) -> list[Draft]:
        done = len(self.session.new_tokens)
        return [Draft.chain(self.tokens[done : done + min(self.k, budgets[0].depth)])]

    def observe(self, *_: Any) -> None: ...

    def release(self, row: int) -> None: ...


def context_growth(rounds: int) -> dict[str, float]:
    """How much more a token costs at 4,096 than at 256 tokens of context: speculation's growth over plain
    decoding's."""
    arms: dict[str, Callable[[], float]] = {}
    for length in (256, 4096):
        ids = long_ids(length)
        perfect = Perfect(decode(Null(), ids, 28).tokens, k=6)
        arms[f"plain {length}"] = lambda ids=ids: decode(Null(), ids, 28).seconds
        arms[f"speculative {length}"] = lambda ids=ids, p=perfect: decode(p, ids, 28).seconds
    times = interleave(arms, rounds)
    growth = {
        kind: [b / a for a, b in zip(times[f"{kind} 256"], times[f"{kind} 4096"], strict=True)]
        for kind in ("plain", "speculative")
    }
    return {**ratio(growth, "speculative", "plain"), **{kind: statistics.median(g) for kind, g in growth.items()}}


CHECKS: dict[str, tuple[Callable[[int], dict[str, float]], str, Callable[[float], bool]]] = {
    "outside_passes": (outside_passes, "<= 0.05", lambda r: r <= 0.05),
    "null_against_upstream": (null_against_upstream, ">= 1.0", lambda r: r >= 1.0),
    "lookup_on_rewrite": (lookup_on_rewrite, ">= 1.8", lambda r: r >= 1.8),
    "self_drafting": (self_drafting, "<= 1.05", lambda r: r <= 1.05),
    "limit_asked_for": (limit_asked_for, ">= 0.97", lambda r: r >= 0.97),
    "memory_growth": (memory_growth, "< 20 MiB", lambda r: r < 20),
    "context_growth": (context_growth, "<= 1.0", lambda r: r <= 1.0),
}


def results(names: Sequence[str], rounds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in names:
        check, aim, reached = CHECKS[name]
        figures: dict[str, Any] = {key: round(value, 4) for key, value in check(rounds).items()}
        yield name, {**figures, "aim": aim, "reached": reached(figures["ratio"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=CHECKS, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    out = {}
    for name, figures in results(options.only or list(CHECKS), options.rounds):
        print(f"{name:24} {figures}", flush=True)
        out[name] = figures
    print(json.dumps(out))


if __name__ == "__main__":
    main()
