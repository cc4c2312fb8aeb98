"""Arms: what their texts mean, what is refused before anything is loaded, and what each kind of them answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import texts
from stubs import plain as plainly

import specdecode as sd
from specdecode.bench.arms import BARE, DEFAULT_ARMS, PEERS, PLAIN, Models, Source, parse
from specdecode.bench.ours import Ours, gap
from specdecode.bench.records import Timing
from specdecode.bench.upstream import Assistant, Lookup, Upstream
from specdecode.errors import SpecError
from specdecode.verify import make_rule

IDS = (10, 20, 30, 10, 20, 30, 10, 20)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("models")
    large, small = texts.save(folder / "large"), texts.save(folder / "small", 1)
    return Source(str(large), str(small), runtime="transformers")


@pytest.fixture(scope="module")
def models(source: Source) -> Models:
    return Models(source)


def run(name: str, models: Models, n: int = 12) -> Timing:
    return parse(name).open(models).run(IDS, n)


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        ("plain", Ours("null", {}, (), None, {})),
        ("ngram", Ours("ngram", {}, (), None, {})),
        ("ngram:k=10, min_match=2", Ours("ngram", {"k": 10, "min_match": 2}, (), None, {})),
        ("ngram:k=3,rule=coupled", Ours("ngram", {"k": 3}, (), make_rule("coupled"), {})),
        ("ngram:rule=lenient,rule.lenience=0.5", Ours("ngram", {}, (), make_rule("lenient", lenience=0.5), {})),
        ("plain:runtime=dense,dtype=int8", Ours("null", {}, (), None, {"runtime": "dense", "dtype": "int8"})),
        ("lm:k=2,confidence=0.5", Ours("lm", {"k": 2, "confidence": 0.5}, (), None, {})),
        ("auto:sources=ngram+lm,nodes=8", Ours("auto", {"nodes": 8}, ("ngram", "lm"), None, {})),
        ("upstream", Upstream("float32")),
        ("upstream:bfloat16", Upstream("bfloat16")),
        ("upstream:dtype=bfloat16", Upstream("bfloat16")),
        ("upstream-lookup:num_tokens=5,max_ngram=2", Lookup("float32", 5, 2)),
        ("upstream-assistant:num_tokens=5", Assistant("float32", 5)),
    ],
)
def test_a_text_says_which_arm(text: str, recipe: Any) -> None:
    assert parse(text) == recipe


def test_what_auto_has_to_know_is_measured_before_anything_is_timed(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without warm-ups the first answer would take the seconds of it."""
    asked: list[Any] = []
    monkeypatch.setattr("specdecode.costs.of", asked.append)
    parse("auto:sources=ngram+lm").open(models)
    assert asked == [models.target().lm, models.draft().lm]


def test_the_default_arms_and_all_peers_exist() -> None:
    for name in (*DEFAULT_ARMS, *PEERS, *BARE):
        parse(name)
    assert PLAIN in DEFAULT_ARMS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' does not exist; choose of: plain, null"),
        ("nonsense", "'nonsense' does not exist; choose of: plain, null"),
        ("plain:k=3", "'null' has no option 'k'"),
        ("ngram:x=3", "'ngram' has no option 'x'"),
        ("ngram:k=0", "k"),
        ("ngram:10", "NAME:option=value"),
        ("ngram:k=", "NAME:option=value"),
        ("ngram:k=3,,", "NAME:option=value"),
        ("ngram:k=3,k=4", "k is given twice"),
        ("ngram:rule=magic", "magic"),
        ("ngram:dtype=int3", "int3"),
        ("plain:runtime=magic", "magic"),
        ("plain:runtime=transformers,dtype=int8", "int8"),
        ("lm:lm=3", "lm cannot be given by name"),
        ("merged", "sources cannot be given by name"),
        ("auto:sources=ngram+magic", "magic"),
        ("upstream:k=3", "'upstream' has no option 'k'"),
        ("upstream:int3", "int3"),
        ("upstream-lookup:num_tokens=0", "num_tokens=0"),
        ("upstream-lookup:max_ngram=many", "max_ngram='many'"),
        ("upstream-assistant:num_tokens=0", "num_tokens=0"),
        ("llamacpp:q9_9", "'q9_9' is no quantisation"),
        ("llamacpp:threads=3", "'llamacpp' has no option 'threads'"),
    ],
)
def test_a_text_that_says_none_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as info:
        parse(text)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("name", ["lm", "upstream-assistant", "auto:sources=ngram+lm"])
def test_an_arm_that_needs_a_draft_model_says_so_before_any_is_loaded(name: str) -> None:
    with pytest.raises(SpecError, match="name the draft model"):
        parse(name).check(Source())
    parse(name).check(Source(draft_model="somewhere"))


@pytest.mark.parametrize(
    "name", ["plain", "ngram:k=4", "lm:k=3", "upstream", "upstream-lookup", "upstream-assistant:num_tokens=3"]
)
def test_every_arm_gives_the_greedy_text_and_its_steps(name: str, models: Models) -> None:
    timing = run(name, models)
    assert list(timing.tokens) == plainly(models.target().lm, IDS, 12)
    assert sum(timing.steps) == len(timing.tokens)
    assert 0 < timing.first_s <= timing.total_s


def test_a_model_is_loaded_once_for_all_arms(models: Models) -> None:
    assert models.target() is models.target(runtime="transformers")
    assert models.upstream(None) is models.upstream(None)
    assert len({id(models.target()), id(models.draft()), id(models.target(dtype="float64"))}) == 3


def test_an_end_token_ends_every_arm(models: Models) -> None:
    """The end token is the one that the model says first."""
    target = models.target()
    first, *_ = plainly(target.lm, IDS, 1)
    ending = sd.Model(target.lm, target.tokenizer, (first,))

    class Ending(Models):
        def target(self, **changes: Any) -> sd.Model:
            return ending

        def upstream(self, dtype: Any, *, draft: bool = False) -> Any:
            return replace(super().upstream(dtype, draft=draft), eos_ids=(first,))

    for name in ("plain", "ngram", "upstream", "upstream-lookup"):
        assert run(name, Ending(models.source)).tokens == (first,), name


def test_our_arm_tells_where_its_time_goes(models: Models) -> None:
    timing = run("ngram:k=4", models)
    assert timing.draft_s is not None
    assert timing.target_s is not None
    assert timing.steps_s is not None
    assert 0 < timing.draft_s + timing.target_s <= timing.steps_s <= timing.total_s
    assert timing.drafted is not None
    assert timing.accepted is not None
    assert timing.drafted >= timing.accepted >= 0
    assert run("upstream", models).drafted is None


def test_a_checkpoint_that_samples_is_asked_greedily_all_the_same(source: Source, tmp_path: Path) -> None:
    folder = texts.save(tmp_path)
    (folder / "generation_config.json").write_text('{"do_sample": true, "temperature": 5.0, "repetition_penalty": 9.0}')
    models = Models(replace(source, model=str(folder)))
    assert run("upstream", models).tokens == run("plain", models).tokens


def test_the_gap_is_the_difference_of_two_logits(models: Models) -> None:
    lm = models.target().lm
    first, second = plainly(lm, IDS, 2)
    assert gap(lm, (*IDS, first), second, second) == 0
    assert gap(lm, (*IDS, first), second, (second + 1) % lm.vocab) > 0


def test_the_tokenizer_of_a_draft_model_must_be_the_targets(source: Source, tmp_path: Path) -> None:
    other = texts.save(tmp_path, tokenizer=texts.word_piece())
    with pytest.raises(SpecError, match="tokenizer"):
        parse("lm").open(Models(replace(source, draft_model=str(other))))
