"""The table of rules: names, lazy factories, refusals, and what every rule owes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from torch import Tensor
from verify_helpers import EXACT, POSITION, Context, constant, decode, logits, measure, rows, sampled, script

from specdecode.errors import BadOption
from specdecode.sampling import Argmax, Keyed, Noise, Stream
from specdecode.types import EMPTY, Draft
from specdecode.verify import RULES, Verifier, make_rule

SAMPLING_RULES = [name for name in RULES if RULES[name].lossless and name != "greedy"]


def noise_for(name: str, seed: int, width: int) -> Noise:
    rule = make_rule(name)
    return Argmax() if not rule.draws else Keyed(seed, width) if rule.keyed else Stream(seed)


@pytest.mark.parametrize("name", RULES)
def test_a_row_tells_the_truth_about_its_rule(name: str) -> None:
    row, rule = RULES[name], make_rule(name)
    assert row.name == name == rule.name
    assert isinstance(rule, Verifier)
    assert rule.keyed is (name == "coupled")
    assert rule.lossless is row.lossless
    assert row.summary
    assert row.source
    assert make_rule(name) == rule


def test_an_unknown_rule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadOption, match=r"'magic' does not exist; choose one of: greedy, rejection, coupled"):
        make_rule("magic")


def test_an_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(BadOption, match=r"'greedy' has no option 'epsilon'; its options are: none"):
        make_rule("greedy", epsilon=0.1)


def test_greedy_and_sampled_sessions_do_not_disturb_each_other() -> None:
    """Fault 80: temperatures [0, 1, 0, .7] side by side: the greedy rows are greedy, and no count is negative."""
    raw = (0.35, 0.45, 0.15, 0.05)
    sharp = tuple(p ** (1 / 0.7) for p in raw)
    laws = [constant(*raw), constant(*raw), constant(*raw), constant(*(p / sum(sharp) for p in sharp))]
    noises: list[Noise] = [Argmax(), Stream(1), Argmax(), Stream(2)]
    rules = [make_rule(name) for name in ("greedy", "rejection", "greedy", "rejection")]
    q = logits((0.25,) * 4)
    for position in range(200):
        for row, (rule, law, noise) in enumerate(zip(rules, laws, noises, strict=True)):
            draft = Draft.chain([position % 4, 1], [None if row in (0, 2) else q, None])
            verdict = rule.verify(draft, rows(law, draft), noise, position)
            assert 0 <= verdict.accepted <= 2
            if row in (0, 2):
                assert set(verdict.tokens) == {1}
                assert verdict.accepted == (2 if position % 4 == 1 else 0)


@pytest.mark.parametrize("name", SAMPLING_RULES)
def test_sampling_rules_sample(name: str) -> None:
    """Fault 82: the law [.6, .4] is drawn from, not its argmax; another seed gives another text."""
    rule, target = make_rule(name), constant(0.6, 0.4)
    assert measure(rule, sampled(constant(0.9, 0.1), 1, 1), target).joint[0] == pytest.approx(0.6, abs=EXACT)

    def text(seed: int) -> list[int]:
        noise = noise_for(name, seed, 2)

        def drafting(context: Context) -> Draft:
            return Draft.chain([noise.draw(logits((0.9, 0.1)), len(context))], [logits((0.9, 0.1))])

        return decode(rule, target, drafting, noise, 40)[0][:40]

    assert text(1) == text(1)
    assert text(1) != text(2)


@pytest.mark.parametrize("name", [name for name in RULES if make_rule(name).draws])
def test_without_a_draft_a_rule_draws_once(name: str) -> None:
    """So plain decoding is the same under every rule of one noise."""
    for seed in range(5):
        ours, plain = noise_for(name, seed, 3), noise_for(name, seed, 3)
        row = logits((0.2, 0.3, 0.5))
        verdict = make_rule(name).verify(EMPTY, row[None], ours, POSITION)
        assert verdict.tokens == (plain.draw(row, POSITION),)
        assert ours.draw(row, POSITION + 1) == plain.draw(row, POSITION + 1)


@pytest.mark.parametrize("name", SAMPLING_RULES)
@pytest.mark.parametrize("drafted", [0, 1, 2])
def test_a_one_hot_row_gives_its_token(name: str, drafted: int) -> None:
    """Fault 20: what is left of a law may be a single token; then only that one comes out."""
    q = logits((0.25, 0.25, 0.5))
    for law in (None, q):
        draft = Draft.chain([drafted], [law])
        for seed in range(20):
            verdict = make_rule(name).verify(draft, logits((0, 1, 0)).expand(2, -1), noise_for(name, seed, 3), POSITION)
            assert set(verdict.tokens) == {1}
            assert verdict.accepted == (drafted == 1)


@dataclass
class Placed:
    """Notes for which positions tokens are drawn; every coin falls in the draft's favour."""

    source: Noise
    positions: list[int] = field(default_factory=list)

    def draw(self, logits: Tensor, position: int) -> int:
        self.positions.append(position)
        return self.source.draw(logits, position)

    def uniform(self) -> float:
        return 0.0


def test_a_draw_is_made_for_the_position_of_its_token() -> None:
    draft = Draft((1, 0, 2), (-1, 0, 1))
    target = rows(script([1, 0, 2, 1] + [0] * 4, 3), draft)
    rejecting, coupled = Placed(Stream(0)), Placed(Keyed(0, 3))
    assert make_rule("rejection").verify(draft, target, rejecting, POSITION).accepted == 3
    assert make_rule("coupled").verify(draft, target, coupled, POSITION).accepted == 3
    assert rejecting.positions == [POSITION + 3]
    assert coupled.positions == [POSITION, POSITION + 1, POSITION + 2, POSITION + 3]


@pytest.mark.parametrize("name", RULES)
def test_rows_are_read_along_the_path_only(name: str) -> None:
    """Rows are filtered when first read, so an unread row costs nothing."""
    read: list[int] = []

    class Spy:
        def __getitem__(self, row: int) -> Tensor:
            read.append(row)
            return logits(np.eye(6)[[2, 0, 4, 0, 0, 1, 5][row]])

    draft = Draft((5, 2, 1, 4, 3, 0), (-1, -1, 0, 1, 1, 3))
    verdict = make_rule(name).verify(draft, Spy(), noise_for(name, 0, 6), POSITION)
    first_children_only = name == "block"
    assert verdict.tokens == ((2,) if first_children_only else (2, 4, 0, 5))
    assert list(dict.fromkeys(read)) == ([0] if first_children_only else [0, 2, 4, 6])
