"""The commands at work on a tiny model: what they print, and where."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import texts
from runner import Cli

import specdecode as sd
from specdecode.cli import show

LENGTH = ["--max-new-tokens", "12"]


@pytest.fixture(scope="session")
def model(folder: Path) -> sd.Model:
    return sd.load(folder)


def test_generate_prints_the_text_and_nothing_else(cli: Cli, folder: Path, model: sd.Model) -> None:
    result = cli("generate", "the END", "--model", folder, *LENGTH)
    wanted = model.chat("the END", max_new_tokens=12)
    assert (result.code, result.out) == (0, wanted.text + "\n")
    for figure in ("12 tokens in", "tokens/s", "drafter auto, rule greedy", "tokens per step", "target", "length"):
        assert figure in result.err
    assert "\x1b" not in result.out + result.err


def test_generate_reads_standard_input_and_raw_text(cli: Cli, folder: Path, model: sd.Model) -> None:
    result = cli("generate", "-", "--raw", "--model", folder, *LENGTH, stdin="the the the")
    assert result.out == model.generate("the the the", max_new_tokens=12).text + "\n"


def test_generate_with_system_message(cli: Cli, folder: Path, model: sd.Model) -> None:
    turns = [{"role": "system", "content": "END"}, {"role": "user", "content": "ab"}]
    result = cli("generate", "ab", "--system", "END", "--model", folder, *LENGTH)
    assert result.out == model.chat(turns, max_new_tokens=12).text + "\n"


def test_a_model_without_chat_template_is_given_the_text_as_it_is(cli: Cli, tmp_path: Path) -> None:
    """And a system message, which would have no place, is refused."""
    texts.save(tmp_path, tokenizer=texts.byte_level(None))
    wanted = sd.load(tmp_path).generate("ab", max_new_tokens=12).text
    assert cli("generate", "ab", "--model", tmp_path, *LENGTH).out == wanted + "\n"
    assert "chat template" in cli("generate", "ab", "--system", "END", "--model", tmp_path, *LENGTH).error
    assert "chat template" in cli("chat", "--model", tmp_path, stdin="ab\n").err


def test_settings_reach_the_answer(cli: Cli, folder: Path, small: Path) -> None:
    """Fault 138: the result's own metadata names method, rule, seed, samples; fault 139: k holds."""
    args = ["--draft-model", small, "--k", "2", "--rule", "rejection", "--temperature", "0.9", "--seed", "7", "-n", "2"]
    told = cli("generate", "the END", "--model", folder, *args, "--logprobs", "1", "--json", *LENGTH).json
    first, second = told["completions"]
    assert (first["drafter"], first["rule"], first["seed"]) == ("lm", "rejection", 7)
    assert second["seed"] != 7
    assert len(first["metrics"]["histogram"]) == 3
    assert [len(entry["top"]) for entry in first["logprobs"]] == [1] * 12
    assert told["config"]["drafter"]["k"] == 2
    assert told["comparison"] is None


def test_what_was_resolved_is_what_the_model_is_asked(
    cli: Cli, folder: Path, model: sd.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 138: sampling and limits are handed on whole."""
    asked: dict[str, Any] = {}
    stream = sd.Model.stream
    monkeypatch.setattr(sd.Model, "stream", lambda self, ids, **kw: asked.update(kw) or stream(self, ids, **kw))
    args = ["--temperature", "0.5", "--top-k", "9", "--seed", "3", "--stop", "END", "--ignore-eos", "-o", "nodes=9"]
    cli("generate", "hi", "--model", folder, *args, *LENGTH)
    assert asked["sampling"] == sd.Sampling(temperature=0.5, top_k=9, seed=3)
    assert asked["limits"] == sd.Limits(12, stop="END", ignore_eos=True)
    assert asked["drafter"] == sd.make_drafter("auto", nodes=9)


@pytest.mark.parametrize("runtime", ["dense", "transformers"])
def test_the_runtime_is_the_one_that_was_asked_for(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    """In float32 the text is the same. Draft models run on it too."""
    made: list[str] = []
    stream = sd.Model.stream

    def noting(self: sd.Model, ids: Any, **options: Any) -> Any:
        made.extend(lm.signature.split()[0] for lm in (self.lm, options["drafter"].lm))
        return stream(self, ids, **options)

    monkeypatch.setattr(sd.Model, "stream", noting)
    args = ["--model", folder, "--draft-model", folder, "--runtime", runtime, "--dtype", "float32"]
    said = cli("generate", "the END", *args, *LENGTH)
    assert made == [runtime] * 2
    assert said.out == sd.load(folder, dtype="float32").chat("the END", max_new_tokens=12, drafter=None).text + "\n"


@pytest.mark.parametrize("args", [[], ["--temperature", "1"], ["--temperature", "1", "-n", "2"]])
def test_compare_runs_plain_decoding_on_the_same_seed(cli: Cli, folder: Path, args: list[str]) -> None:
    result = cli("generate", "the the the the", "--compare", "--model", folder, *args, *LENGTH)
    assert "the text is identical" in result.err
    assert re.search(r"plain decoding: [\d.]+ tokens/s; speed-up [\d.]+", result.err)
    told = cli("generate", "the the", "--compare", "--json", "--model", folder, *args, *LENGTH).json
    assert told["comparison"]["identical"] is True
    assert told["comparison"]["speed_up"] > 0


def test_compare_does_not_call_another_draw_a_difference(cli: Cli, folder: Path, small: Path) -> None:
    args = ["--rule", "rejection", "--temperature", "1", "--seed", "1", "--draft-model", small]
    assert "another draw from the same law" in cli("generate", "ab", "--compare", "--model", folder, *args, *LENGTH).err


def test_several_samples_are_printed_apart(cli: Cli, folder: Path) -> None:
    result = cli("generate", "ab", "-n", "3", "--temperature", "1", "--seed", "1", "--model", folder, *LENGTH)
    assert re.findall(r"^--- (\d)$", result.out, re.M) == ["1", "2", "3"]


def test_a_prompt_beyond_the_context_is_refused(cli: Cli, folder: Path) -> None:
    assert "context" in cli("generate", "x" * 3000, "--model", folder).error


def test_a_damaged_model_is_refused(cli: Cli, folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes()[: 1000 if "safetensors" in file.name else None])
    assert "corrupt" in cli("generate", "hi", "--model", tmp_path).error


def test_chat_keeps_its_history_until_reset(cli: Cli, folder: Path, model: sd.Model) -> None:
    lines = "ab\n\nthe END\n/reset\nab\n/exit\nnever read\n"
    result = cli("chat", "--model", folder, "--system", "stop", *LENGTH, stdin=lines)
    history = [{"role": "system", "content": "stop"}, {"role": "user", "content": "ab"}]
    first = model.chat(history, max_new_tokens=12).text
    history += [{"role": "assistant", "content": first}, {"role": "user", "content": "the END"}]
    second = model.chat(history, max_new_tokens=12).text
    assert (result.code, result.out) == (0, f"{first}\n{second}\n{first}\n")
    assert result.err.count("tokens/s") == 3


def test_chat_outlives_a_turn_that_does_not_fit(cli: Cli, folder: Path, model: sd.Model) -> None:
    result = cli("chat", "--model", folder, *LENGTH, stdin="x" * 3000 + "\nab\n")
    assert result.out == model.chat("ab", max_new_tokens=12).text + "\n"
    assert "error: the prompt has" in result.err


def test_methods_lists_both_tables(cli: Cli) -> None:
    told = cli("methods", "--json").json
    assert [row["name"] for row in told["drafters"]] == list(sd.DRAFTERS)
    assert [(row["name"], row["lossless"]) for row in told["rules"]] == [
        (r.name, r.lossless) for r in sd.RULES.values()
    ]
    assert all({"needs_training", "source", "summary"} <= row.keys() for row in told["drafters"] + told["rules"])
    shown = cli("methods").out
    assert all(name in shown for name in (*sd.DRAFTERS, *sd.RULES, "lossless", "needs training"))


@pytest.mark.parametrize("make", [sd.make_drafter, sd.make_rule])
@pytest.mark.parametrize("name", [[], None, 5])
def test_a_method_has_a_name(make: Any, name: Any) -> None:
    with pytest.raises(sd.SpecError, match="does not exist; choose one of"):
        make(name)


def test_demo_compares_drafters_that_need_nothing(cli: Cli, folder: Path) -> None:
    result = cli("demo", "--model", folder, *LENGTH)
    assert result.code == 0
    rows = re.findall(r"^│ (\w+) +│.*│ (yes|no) +│$", result.out, re.M)
    assert rows == [("null", "yes"), ("ngram", "yes"), ("suffix", "yes"), ("auto", "yes")] * 2
    assert "speed-up" in result.out


def test_a_relaxed_rule_says_what_it_spent_even_where_that_is_nothing(cli: Cli, folder: Path) -> None:
    args = ["generate", "the the the", "--model", folder, *LENGTH, "--drafter", "ngram"]
    strict = cli(*args, "--rule", "lenient", "--rule-option", "lenience=1").err
    assert "relaxed: 0 nats spent\n" in strict
    assert "nats" not in cli(*args).err


def test_the_summary_says_what_its_shares_are_of(cli: Cli, folder: Path) -> None:
    said = cli("generate", "the the the", "--model", folder, *LENGTH, "--drafter", "suffix", "-o", "floor=0").err
    assert re.search(
        r"accepted \d+ of \d+ drafted tokens \(\d+ %\); steps that accepted at least 1, 2, ... of them: ", said
    )


def test_figures_that_do_not_exist_are_not_numbers() -> None:
    assert (show.figure(None), show.percent(0, 0)) == ("n/a", "n/a")
