"""Text under a grammar is that of plain decoding under the same grammar: every method x rule that promises one text;
and the sampled law is the target's under the grammar, against exact enumeration, for every other."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch
from enroll import METHODS, ONE_TEXT, SAMPLED, build
from stubs import BranchLM, StubLM, fix, stub
from texts import TOKENIZER, VOCAB, encode
from torch import Tensor

import specdecode as sd
from specdecode.drafters import Drafter
from specdecode.drafters.merged import Merged
from specdecode.session import Session
from specdecode.types import EMPTY, Budget, Draft
from specdecode.verify import RULES, make_rule

EOS = TOKENIZER.eos_token_id
PROMPTS = [encode(TOKENIZER, text) for text in ("the stop the", "ab", "ok END the ok END", '{"name": "ab", "n": 3}')]
TARGET, ERROR = BranchLM(VOCAB, 1, scale=2.0), BranchLM(VOCAB, 2, scale=1.0)
GRAMMARS = {
    "json": sd.Grammar.json_schema(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 5},
                "n": {"type": "integer"},
                "tags": {"type": "array", "items": {"enum": ["abyss", "aby", True]}, "maxItems": 2},
            },
            "required": ["name", "tags"],
            "additionalProperties": False,
        }
    ),
    "regex": sd.Grammar.regex("((the|The|END) (ok|ab) ?)+[0-9]?"),
    "lark": sd.Grammar.lark('start: e\ne: t ("+" t)*\nt: /[0-9]{1,3}/ | "(" e ")" | "the" "stop"'),
}
GREEDY, DRAWN = sd.Sampling(), sd.Sampling(temperature=0.8, top_k=40, seed=11)


def small() -> StubLM:
    """A model that often agrees with the target."""
    return StubLM(lambda prefix, i: TARGET.law(prefix, i) + ERROR.law(prefix, i), VOCAB)


def model(lm: Any = TARGET) -> sd.Model:
    return sd.Model(lm, TOKENIZER, (EOS,))


@cache
def plain(name: str, greedy: bool) -> list[sd.Completion]:
    law = GREEDY if greedy else DRAWN
    return model().generate(PROMPTS, drafter=None, grammar=GRAMMARS[name], sampling=law, max_new_tokens=48)


@pytest.mark.parametrize("rule", ONE_TEXT)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["json", *(pytest.param(name, marks=pytest.mark.slow) for name in ("regex", "lark"))])
def test_text_under_a_grammar(name: str, method: str, rule: str) -> None:
    """A ragged batch, and the second prompt alone."""
    law = GREEDY if rule == "greedy" else DRAWN
    want = [(c.tokens, c.finish_reason, c.text) for c in plain(name, rule == "greedy")]
    options: Any = {"rule": rule, "grammar": GRAMMARS[name], "sampling": law, "max_new_tokens": 48}
    done = model().generate(PROMPTS, drafter=build(method, small()), **options)
    assert [(c.tokens, c.finish_reason, c.text) for c in done] == want
    alone = model().generate(PROMPTS[1], drafter=build(method, small()), **options)
    assert alone.tokens == want[1][0]
    if name == "json" and method != "null":
        assert sum(c.metrics.steps for c in done) < sum(len(c.tokens) for c in done)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", RULES)
def test_every_answer_fits_under_every_rule(rule: str, temperature: float) -> None:
    """The relaxed ones too, which take other tokens than the target's: none that the grammar forbids."""
    if temperature and not make_rule(rule).draws:
        temperature = 0.0
    grammar = sd.Grammar.regex("((the|END) ok[0-9]{3}){3}")
    sources = (fix(encode(TOKENIZER, "the stop")).drafter, build("lm", small()), fix(encode(TOKENIZER, "9")).drafter)
    for seed in range(3):
        law = sd.Sampling(temperature=temperature, seed=seed)
        done = model().generate(PROMPTS[0], drafter=Merged(sources), rule=rule, grammar=grammar, sampling=law)
        assert re.fullmatch(grammar.text, done.text)


def test_the_plain_texts_are_worth_comparing() -> None:
    for greedy in (True, False):
        answers = {name: plain(name, greedy) for name in GRAMMARS}
        for done in answers.values():
            assert len({c.tokens for c in done}) == len(PROMPTS)
            assert {c.finish_reason for c in done} <= {"grammar", "eos", "length"}
        assert all(set(json.loads(c.text)) >= {"name", "tags"} for c in answers["json"] if c.finish_reason != "length")


@pytest.mark.slow
@pytest.mark.parametrize("greedy", [True, False])
def test_text_of_the_default_model(greedy: bool) -> None:
    """Every method; the model drafts for itself where one is needed."""
    real = sd.load()
    person = {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 120}}
    schema = {
        "type": "object",
        "properties": {**person, "languages": {"type": "array", "items": {"enum": ["French", "English", "German"]}}},
        "required": ["name", "age", "languages"],
        "additionalProperties": False,
    }
    law = sd.Sampling() if greedy else sd.Sampling(temperature=0.9, seed=3)
    options: Any = {"grammar": sd.Grammar.json_schema(schema), "sampling": law, "max_new_tokens": 80}
    ask_for = "Describe Marie, a teacher of 41 who speaks French and English, as JSON."
    want = real.chat(ask_for, drafter=None, **options)
    assert set(json.loads(want.text)) == {"name", "age", "languages"}
    for method in METHODS:
        done = real.chat(ask_for, drafter=build(method, real.lm), **options)
        assert (done.tokens, done.finish_reason) == (want.tokens, want.finish_reason), method
        assert method == "null" or done.metrics.steps < 0.8 * want.metrics.steps


# --- the sampled law --------------------------------------------------------------------------------------------------

SHORT = sd.Grammar.regex("[123][45]?(67)?")
SHORT_TARGET, SHORT_ERROR = BranchLM(VOCAB, 5, scale=0.8), BranchLM(VOCAB, 6, scale=0.8)
BATCH = 100
# 18 texts: the expected total variation is about .06 at 700 draws, .03 at 2,500; bounds are beyond 4.5 sigma.
FAST, WHOLE = (700, 0.12), (2_500, 0.065)


def ask(prefix: tuple[int, ...], i: int) -> Tensor:
    """The target: it depends on the newest two tokens alone, so that laws can be remembered."""
    return SHORT_TARGET.law(prefix[-2:], 0)


def guess(prefix: tuple[int, ...], i: int) -> Tensor:
    return ask(prefix, i) + SHORT_ERROR.law(prefix[-2:], 0)


@cache
def exact() -> dict[tuple[int, ...], float]:
    """The law of whole answers: the target's own, of the tokens that may follow, token for token."""
    matcher = SHORT.matcher(TOKENIZER, VOCAB, (EOS,), 1, (EOS,))
    law: dict[tuple[int, ...], float] = {}
    waiting: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while waiting:
        path, p = waiting.pop()
        if path and (path[-1] == EOS or matcher.scan(path) is not None):
            law[path] = p
            continue
        scores = matcher(torch.tensor([[PROMPTS[0][-1], *path]]), ask((*PROMPTS[0], *path), 0)[None])[0]
        shares = scores.softmax(-1)
        waiting += [((*path, token), p * float(shares[token])) for token in shares.nonzero().flatten().tolist()]
    return law


def distance(drafter: Drafter, rule: str, draws: int) -> tuple[float, float]:
    """The total variation between the exact law of answers and what was drawn, and the accepted drafts an answer."""
    found: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for start in range(0, draws, BATCH):
        laws = sd.Sampling(temperature=1.0, seed=start)
        done = model(StubLM(ask, VOCAB)).generate(
            PROMPTS[0], n=BATCH, drafter=drafter, rule=rule, grammar=SHORT, sampling=laws
        )
        found.update(c.tokens for c in done)
        accepted += sum(c.metrics.accepted for c in done)
    assert set(found) <= set(exact())
    return sum(abs(found[text] / draws - p) for text, p in exact().items()) / 2, accepted / draws


def test_the_exact_law_is_one() -> None:
    assert sum(exact().values()) == pytest.approx(1, abs=1e-5)
    assert len(exact()) == 18


@pytest.mark.parametrize(("method", "rule"), [("lm: tree of drawn siblings", "rejection"), ("lm", "block")])
def test_law_of_answers_quick(method: str, rule: str) -> None:
    far, accepted = distance(build(method, StubLM(guess, VOCAB)), rule, FAST[0])
    assert far < FAST[1]
    assert accepted > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rule"),
    [*((method, "rejection") for method in METHODS), *(("lm: tree of drawn siblings", rule) for rule in SAMPLED)],
)
def test_law_of_answers(method: str, rule: str) -> None:
    assert distance(build(method, StubLM(guess, VOCAB)), rule, WHOLE[0])[0] < WHOLE[1]


def hides_the_grammar(row: int, turn: int, session: Session, budget: Budget) -> Draft:
    """Draws from the law under the grammar, and says that it drew from the law without."""
    if budget.depth < 1:
        return EMPTY
    raw = guess(tuple(session.tokens), 0)
    q = session.filters.apply(raw, session.tokens)
    return Draft.chain([session.noise.draw(q, len(session.tokens))], [raw])


def test_a_draft_that_hides_the_grammar_fails_the_same_check() -> None:
    """Negative control."""
    far, _ = distance(stub(hides_the_grammar).drafter, "rejection", FAST[0])
    assert far > 1.2 * FAST[1]
