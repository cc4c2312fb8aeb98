"""The fast runtime in the precisions it is used in: speculative text is plain text, token for token, without exception.

Greedy and drawn (one seed, one text), every method, alone and in a ragged batch; no gap between scores excuses a
difference. The prompts are short ones, which are read exactly, and long ones, which are read in bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from enroll import METHODS, build
from stubs import dense, make_session, quantised

from specdecode.drafters import Drafter
from specdecode.drafters.null import Null
from specdecode.engine import Generation
from specdecode.models.dense import wide
from specdecode.models.dense.model import DenseModel
from specdecode.sampling import Sampling
from specdecode.verify import make_rule

STORED = ["float16", "bfloat16", "int8", "q4_0"]
NAMES = {"greedy": "llama, biases", "coupled": "qwen3, mixed"}  # the rule and the model that it is tried on
LENGTHS = (1, 3, 34, 100, 8, 70)
NEW = 24


@pytest.fixture(autouse=True)
def _bfloat16_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "pays", lambda: True)


@cache
def target(name: str, stored: str) -> DenseModel:
    model = dense(name) if hasattr(torch, stored) else quantised(dense(name), stored)
    return DenseModel(model, dtype=getattr(torch, stored, None))


@cache
def near(name: str) -> DenseModel:
    """A model close to the target, so that its drafts are right now and then."""
    model, other = dense(name), dense(name, 2)
    with torch.no_grad():
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            ours += 0.15 * theirs
    return DenseModel(model)


@cache
def prompts() -> list[tuple[int, ...]]:
    """Half of them repeat themselves, so that lookup has something to find."""
    rng = torch.Generator().manual_seed(3)
    drawn = [torch.randint(0, 97, (n,), generator=rng).tolist() for n in LENGTHS]
    return [tuple((ids[:4] * n)[:n] if i % 2 else ids) for i, (n, ids) in enumerate(zip(LENGTHS, drawn, strict=True))]


def run(stored: str, rule: str, drafter: Drafter, rows: Sequence[int]) -> tuple[list[list[int]], int]:
    """What prompts `rows` are answered, each with its own seed, and how many drafted tokens were right."""
    lm = target(NAMES[rule], stored)
    laws = [Sampling(temperature=0.0 if rule == "greedy" else 0.6, top_k=3, seed=row) for row in rows]
    sessions = [
        make_session(lm, prompts()[row], law, rule, max_new_tokens=NEW) for row, law in zip(rows, laws, strict=True)
    ]
    for _ in Generation(lm, drafter, sessions, [make_rule(rule)] * len(sessions)):
        pass
    accepted = sum(record.accepted for session in sessions for record in session.records)
    return [session.new_tokens for session in sessions], accepted


@cache
def plain(stored: str, rule: str) -> list[list[int]]:
    return [run(stored, rule, Null(), [row])[0][0] for row in range(len(LENGTHS))]


@pytest.mark.parametrize("rule", NAMES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stored", STORED)
def test_speculative_text_is_plain_text(stored: str, method: str, rule: str) -> None:
    expected = plain(stored, rule)
    drafter = build(method, near(NAMES[rule]))
    together, accepted = run(stored, rule, drafter, range(len(LENGTHS)))
    assert together == expected, "a ragged batch"
    assert method in ("null", "auto", "forced") or accepted > 0, "drafts that are never right prove little"
    for row in (1, 3):
        assert run(stored, rule, drafter, [row])[0] == [expected[row]], f"prompt of {LENGTHS[row]} tokens alone"


def test_texts_of_other_precisions_differ() -> None:
    """Negative control: weights rounded in another way do change what is said within these lengths."""
    for rule in NAMES:
        assert len({str(plain(stored, rule)) for stored in STORED}) == len(STORED)
