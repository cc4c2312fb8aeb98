"""Kind 09: padded and mismatched vocabularies. Cross-tokenizer drafting and reduced vocabularies do not exist yet."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from enroll import METHODS, SAMPLED
from stubs import StubLM, tiny
from texts import byte_fallback, byte_level
from whole import PROMPT, Pair, V, base, habit, law_of, make, metrics, near, run, say, transformers

from specdecode.drafters import make_drafter
from specdecode.errors import Incompatible
from specdecode.models.hf import HFModel
from specdecode.sampling import Sampling
from specdecode.text.load import draft_model
from specdecode.text.model import Model

IDS = 97


def padded(model: Any, width: int) -> Any:
    """The model with embeddings as wide as `width`; the ids beyond its own 97 would be its favourites."""
    wide = tiny(vocab_size=width)
    weights = {**model.state_dict()}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        junk = 5 * wide.state_dict()[name][IDS:]
        weights[name] = torch.cat([weights[name], junk])
    wide.load_state_dict(weights)
    return wide


@cache
def pair(target: int, small: int) -> Pair:
    drafter = HFModel(padded(near(), small), vocab=IDS)
    return Pair(HFModel(padded(tiny(), target), vocab=IDS), drafter, law_of(drafter))


@pytest.mark.parametrize("rule", ["greedy", *SAMPLED])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("widths", [(104, 100), (100, 104)])
def test_padding_is_no_vocabulary(widths: tuple[int, int], method: str, rule: str) -> None:
    """Fault 54: with 97 ids, and logits 104 and 100 wide or the reverse, each method says what it says without padding,
    greedily and at T=1: no id of the padding is drafted or emitted, nor does it take any probability."""
    law = Sampling(temperature=0 if rule == "greedy" else 1, seed=4)
    prompt = [10, 3]
    ours, bare = pair(*widths), transformers()
    drafter = make(method, ours)
    asked = {"n": 20, "rule": rule, "sampling": law}
    assert say(ours.target, drafter, prompt, **asked) == say(bare.target, make(method, bare), prompt, **asked)
    assert all(token < IDS for turn in drafter.seen for token in turn.draft.tokens)


def test_the_padding_would_win() -> None:
    """Negative control of the above: where the padding is not cut off, it is what the model says."""
    assert max(base(HFModel(padded(tiny(), 104)), [10, 3])) >= IDS


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_a_drafter_of_another_vocabulary_is_only_useless(rule: str) -> None:
    """Fault 55: forced together, past the check, a model of scrambled ids drafts in vain and changes nothing."""
    law = Sampling(temperature=0 if rule == "greedy" else 1, seed=4)
    target = habit().target
    scrambled = StubLM(lambda prefix, i: target.law(prefix, i).roll(7), V)
    (session,) = run(target, make_drafter("lm", lm=scrambled), PROMPT, n=60, rule=rule, sampling=law)
    assert session.new_tokens == base(target, PROMPT, n=60, rule=rule, sampling=law)
    assert metrics(session).acceptance_rate < 0.2


def test_the_check_stands_where_pairs_are_made() -> None:
    """Fault 55: another tokenizer is refused when a draft model is made, naming the first id that differs."""
    models = [Model(HFModel(tiny(vocab_size=400)), tokenizer()) for tokenizer in (byte_level, byte_fallback)]
    with pytest.raises(Incompatible, match="id 0 is"):
        draft_model(models[0], models[1])
