"""Texts from elsewhere: right ones pass, wrong ones fail with their gap, and a bad line refuses the whole file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from certify_helpers import PROMPTS, model, quiet
from stubs import BranchLM
from texts import VOCAB

import specdecode as sd
from specdecode.certify import judge, read_outputs
from specdecode.certify.findings import FAIL, NOT_APPLICABLE, PASS, Finding
from specdecode.errors import BadInput

LM = BranchLM(VOCAB, seed=1, scale=3.0, context=200)
GOOD = {"prompt_ids": [1, 2, 3], "sampling": {}, "output_ids": [4, 5]}


def line(ids: tuple[int, ...], told: dict[str, Any], actual: sd.Sampling) -> dict[str, Any]:
    done = model(LM).generate(ids, drafter=None, sampling=actual, max_new_tokens=40)
    return {"prompt_ids": list(ids), "sampling": told, "output_ids": list(done.tokens)}


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(text if isinstance(text, str) else json.dumps(text) for text in lines))
    return path


def found(path: Path, **options: Any) -> dict[str, Finding]:
    certificate = judge(model(LM), read_outputs(path), tick=quiet, **options)
    assert certificate.about["outputs"] == len(read_outputs(path))
    return {finding.test: finding for finding in certificate.findings}


def sampled(told: float, actual: float, n: int = 8) -> list[dict[str, Any]]:
    draws = [sd.Sampling(temperature=actual, top_p=0.95, seed=seed) for seed in range(n)]
    return [line(PROMPTS[s.seed % 2], {"temperature": told, "top_p": 0.95}, s) for s in draws if s.seed is not None]


def test_right_texts_pass(tmp_path: Path) -> None:
    penalised = {"repetition_penalty": 1.3, "logit_bias": {"7": -2.5}, "seed": 3}
    greedy = [
        line(PROMPTS[0], {}, sd.Sampling()),
        line(PROMPTS[1], penalised, sd.Sampling(repetition_penalty=1.3, logit_bias={7: -2.5})),
    ]
    tests = found(write(tmp_path / "o.jsonl", [*greedy, "", *sampled(0.8, 0.8)]))
    assert {name: finding.outcome for name, finding in tests.items()} == dict.fromkeys(
        ("greedy parity", "logit gap", "score", "ranks"), PASS
    )
    assert "2 of 2 texts equal (80 tokens)" in tests["greedy parity"].found
    assert tests["score"].figures["tokens"] == 320


def test_a_wrong_temperature_fails(tmp_path: Path) -> None:
    tests = found(write(tmp_path / "o.jsonl", sampled(0.7, 1.0)))
    assert (tests["score"].outcome, tests["ranks"].outcome) == (FAIL, FAIL)
    assert tests["score"].figures["z"] > 8
    assert tests["greedy parity"].outcome == NOT_APPLICABLE


def test_a_cut_that_was_not_made_fails(tmp_path: Path) -> None:
    free = [line(PROMPTS[0], {"temperature": 1.0, "top_k": 1}, sd.Sampling(temperature=1.3, seed=s)) for s in range(2)]
    tests = found(write(tmp_path / "o.jsonl", free))
    assert tests["score"].outcome == FAIL
    assert tests["score"].figures["excluded"] > 10


def test_one_lines_cut_excuses_no_other_line(tmp_path: Path) -> None:
    banned = line(PROMPTS[0], {"temperature": 1.0}, sd.Sampling(temperature=1.0, seed=1))
    banned["sampling"]["suppress"] = [banned["output_ids"][-1]]
    cut = sampled(0.8, 0.8, n=1)
    assert found(write(tmp_path / "o.jsonl", cut))["score"].outcome == PASS
    assert found(write(tmp_path / "o.jsonl", [banned, *cut]))["score"].outcome == FAIL


def test_what_follows_an_excused_token_is_judged(tmp_path: Path) -> None:
    text = line(PROMPTS[0], {}, sd.Sampling())
    best, second = LM.law(PROMPTS[0], 0).topk(2).indices.tolist()
    assert text["output_ids"][0] == best
    gap = float(LM.law(PROMPTS[0], 0)[best] - LM.law(PROMPTS[0], 0)[second])
    rest = model(LM).generate((*PROMPTS[0], second), drafter=None, max_new_tokens=20).tokens
    for after, outcome in ((rest, PASS), ([(token + 1) % VOCAB for token in rest], FAIL)):
        path = write(tmp_path / "o.jsonl", [{**text, "output_ids": [second, *after]}])
        tests = found(path, gap=gap + 0.01)
        assert (tests["greedy parity"].outcome, tests["logit gap"].outcome) == (outcome, outcome)
        assert "0 of 1 texts equal" in tests["greedy parity"].found


@pytest.mark.parametrize(("place", "small"), [(30, False), (34, True)])
def test_a_changed_token_fails_with_its_gap(tmp_path: Path, place: int, small: bool) -> None:
    """A small one is what coarser arithmetic may bring, and that is said."""
    changed = line(PROMPTS[0], {}, sd.Sampling())
    before = (*PROMPTS[0], *changed["output_ids"][:place])
    law = LM.law(before, 0)
    best, second = law.topk(2).indices.tolist()
    assert changed["output_ids"][place] == best
    changed["output_ids"][place:] = [second]
    gap = float(law[best] - law[second])
    path = write(tmp_path / "o.jsonl", [line(PROMPTS[1], {}, sd.Sampling()), changed])
    tests = found(path)
    said = f"1 of 2 texts equal ({41 + place} tokens); text 2 parts after {place} tokens"
    assert said in tests["greedy parity"].found
    assert tests["greedy parity"].outcome == tests["logit gap"].outcome == FAIL
    assert tests["logit gap"].figures["largest"] == pytest.approx(gap, rel=1e-5)
    assert ("give it a gap" in tests["logit gap"].reason) == small
    assert tests["score"].outcome == NOT_APPLICABLE
    assert not found(path, gap=gap - 0.01)["logit gap"].reason
    excused = found(path, gap=gap + 0.01)
    assert excused["greedy parity"].outcome == excused["logit gap"].outcome == PASS


def test_a_banned_token_fails_both_ways(tmp_path: Path) -> None:
    greedy = line(PROMPTS[0], {}, sd.Sampling())
    ban = {"suppress": [greedy["output_ids"][0]]}
    tests = found(write(tmp_path / "o.jsonl", [{**greedy, "sampling": ban}]))
    assert tests["logit gap"].figures["largest"] == float("inf")
    drawn = {**greedy, "sampling": {**ban, "temperature": 1.0}}
    assert found(write(tmp_path / "o.jsonl", [drawn]))["score"].outcome == FAIL


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "o.jsonl", [GOOD])
    plain = read_outputs(path)
    path.write_text("\ufeff" + path.read_text(), encoding="utf-8")
    assert read_outputs(path) == plain


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ([1, 2], "is no object"),
        ({"prompt_ids": [1], "sampling": {}}, "lacks 'output_ids'"),
        ({**GOOD, "temperature": 1.0}, "has the unknown 'temperature'"),
        ({**GOOD, "output_ids": []}, "output_ids must be a list of token ids that is not empty, found []"),
        ({**GOOD, "output_ids": [1, -1]}, "output_ids must be"),
        ({**GOOD, "prompt_ids": "abc"}, "prompt_ids must be"),
        ({**GOOD, "prompt_ids": [True]}, "prompt_ids must be"),
        ({**GOOD, "sampling": None}, "sampling must be an object"),
        ({**GOOD, "sampling": {"top_q": 1}}, "sampling has no option 'top_q'"),
        ({**GOOD, "sampling": {"processors": []}}, "sampling has no option 'processors'"),
        ({**GOOD, "sampling": {"top_p": 2}}, "top_p=2 will not do"),
        ({**GOOD, "sampling": {"logit_bias": {"x": 1}}}, "logit_bias must be"),
        ({**GOOD, "sampling": {"logit_bias": {"3": 10**400}}}, "logit_bias must be"),
        ({**GOOD, "sampling": {"logit_bias": {"9" * 4000: 1}}}, "logit_bias must be"),
        ({**GOOD, "sampling": {"temperature": 10**400}}, "temperature"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, bad: Any, said: str) -> None:
    path = write(tmp_path / "o.jsonl", [GOOD, "", bad])
    with pytest.raises(BadInput) as error:
        read_outputs(path)
    assert str(error.value).startswith(f"{path}, line 3")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({**GOOD, "output_ids": [VOCAB]}, f"output_ids holds {VOCAB}"),
        ({**GOOD, "prompt_ids": [VOCAB]}, f"token id {VOCAB}"),
        ({**GOOD, "sampling": {"suppress": [VOCAB]}}, f"suppress names token {VOCAB}"),
        ({**GOOD, "output_ids": [1] * 300}, "exceed the model's context of 200"),
        ({**GOOD, "prompt_ids": [1] * 300}, "300 tokens"),
    ],
)
def test_a_line_of_another_model_is_refused_before_any_pass(tmp_path: Path, bad: Any, said: str) -> None:
    path = write(tmp_path / "o.jsonl", [GOOD, bad])
    LM.forget()
    with pytest.raises(BadInput, match=f"line 2: .*{said}"):
        judge(model(LM), read_outputs(path))
    assert LM.passes == LM.reads == []


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe"])
def test_a_file_without_lines_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "o.jsonl").write_bytes(content)
    with pytest.raises(BadInput, match="JSON lines"):
        read_outputs(tmp_path / "o.jsonl")
    with pytest.raises(BadInput, match="cannot be read"):
        read_outputs(tmp_path / "absent.jsonl")
