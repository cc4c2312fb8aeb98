"""Every option of the command line arrives where it is read, or is refused in one line before any model is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import typer
from runner import Cli

from specdecode.cli.app import app
from specdecode.cli.settings import Asked, Settings

LARK = Path(__file__).with_name("sums.lark")
# name -> what to type, where it must show in the resolved settings, and as what
CASES: dict[str, tuple[list[str], str, Any]] = {
    "model": (["--model", "a/b"], "model.source", "a/b"),
    "dtype": (["--dtype", "bfloat16"], "model.dtype", "bfloat16"),
    "runtime": (["--runtime", "transformers"], "model.runtime", "transformers"),
    "device": (["--device", "cpu"], "model.device", "cpu"),
    "threads": (["--threads", "3"], "model.threads", 3),
    "drafter": (["--drafter", "null"], "drafter.name", "null"),
    "draft_model": (["--draft-model", "c/d"], "drafter.model", "c/d"),
    "k": (["--k", "3", "--drafter", "ngram"], "drafter.k", 3),
    "option": (["-o", "nodes=5"], "drafter.nodes", 5),
    "explain": (["--explain"], "drafter.explained", True),
    "rule": (["--rule", "rejection"], "rule.name", "rejection"),
    "rule_option": (["--rule", "lenient", "--rule-option", "lenience=0.3"], "rule.lenience", 0.3),
    "budget": (["--rule", "typical", "--budget", "2.5"], "rule.budget", 2.5),
    "temperature": (["--temperature", "0.4"], "sampling.temperature", 0.4),
    "top_k": (["--top-k", "7"], "sampling.top_k", 7),
    "top_p": (["--top-p", "0.6"], "sampling.top_p", 0.6),
    "min_p": (["--min-p", "0.1"], "sampling.min_p", 0.1),
    "typical_p": (["--typical-p", "0.3"], "sampling.typical_p", 0.3),
    "repetition_penalty": (["--repetition-penalty", "1.3"], "sampling.repetition_penalty", 1.3),
    "presence_penalty": (["--presence-penalty", "0.2"], "sampling.presence_penalty", 0.2),
    "frequency_penalty": (["--frequency-penalty", "0.8"], "sampling.frequency_penalty", 0.8),
    "logit_bias": (["--logit-bias", "3=2.5", "--logit-bias", "4=-1"], "sampling.logit_bias", {"3": 2.5, "4": -1.0}),
    "no_repeat_ngram": (["--no-repeat-ngram", "4"], "sampling.no_repeat_ngram_size", 4),
    "suppress": (["--suppress", "5", "--suppress", "6"], "sampling.suppress", [5, 6]),
    "seed": (["--seed", "11"], "sampling.seed", 11),
    "json_schema": (["--json-schema", '{"type": "null"}'], "grammar.text", '{"type": "null"}'),
    "regex": (["--regex", "[ab]+"], "grammar", {"kind": "regex", "text": "[ab]+"}),
    "grammar": (["--grammar", str(LARK)], "grammar", {"kind": "lark", "text": LARK.read_text()}),
    "max_new_tokens": (["--max-new-tokens", "9"], "limits.max_new_tokens", 9),
    "min_new_tokens": (["--min-new-tokens", "2"], "limits.min_new_tokens", 2),
    "stop": (["--stop", "END", "--stop", "\n"], "limits.stop", ["END", "\n"]),
    "stop_id": (["--stop-id", "8"], "limits.stop_ids", [8]),
    "include_stop": (["--include-stop"], "limits.include_stop", True),
    "ignore_eos": (["--ignore-eos"], "limits.ignore_eos", True),
    "raw": (["--raw"], "raw", True),
    "system": (["--system", "Be brief."], "system", "Be brief."),
    "n": (["-n", "3"], "n", 3),
    "logprobs": (["--logprobs", "2", "--json"], "logprobs", 2),
    "json": (["--json"], "json", True),
    "compare": (["--compare"], "compare", True),
}
WARM = ["--temperature", "0.7"]  # under which every option has an effect
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def options_of(command: str) -> list[str]:
    """The options that the command really takes."""
    return [p.name for p in COMMANDS[command].params if p.name not in ("help", "prompt", "dry_run")]


def resolved(document: Any, path: str) -> Any:
    return reduce(lambda inner, key: inner[key], path.split("."), document)


def start(command: str) -> list[str]:
    return [command, *(["hi"] if command == "generate" else []), "--dry-run", *WARM]


@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command in ("generate", "chat") for name in options_of(command)]
)
def test_every_option_reaches_the_resolved_settings(cli: Cli, command: str, name: str) -> None:
    """Faults 138, 139: a value other than the default shows where it is read. An option without a case fails."""
    args, path, value = CASES[name]
    before, after = cli(*start(command)).json, cli(*start(command), *args).json
    assert resolved(after, path) == value
    assert path not in before or resolved(before, path) != value


def test_the_commands_take_what_the_settings_hold() -> None:
    shared = {f.name for f in fields(Settings)}
    assert set(options_of("chat")) == shared | {"system"}
    assert set(options_of("generate")) == shared | {f.name for f in fields(Asked)} - {"dry_run"}


def test_defaults_are_the_librarys_own(cli: Cli) -> None:
    """Fault 141: without k, the drafter's own."""
    import specdecode as sd
    from specdecode.drafters.auto import Auto
    from specdecode.text.request import Limits

    told = cli("generate", "hi", "--dry-run").json
    options = {"sources": list(Auto().sources), "nodes": Auto().nodes}
    assert told["drafter"] == {"name": "auto", "model": None, "explained": False, **options}
    assert told["sampling"]["temperature"] == 0
    assert told["sampling"]["repetition_penalty"] == sd.Sampling().repetition_penalty
    assert told["limits"]["max_new_tokens"] == Limits().max_new_tokens
    assert told["rule"] == {"name": "greedy"}
    assert cli("generate", "hi", "--dry-run", "--draft-model", "x").json["drafter"] == {
        "name": "lm", "model": "x", "explained": False, "k": 5, "tree": None, "schedule": "fixed", "confidence": None,
        "replacement": False, "ahead": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--k", "3"], "'auto' has no option 'k'"),
        (["--drafter", "ngram", "--k", "0"], "k=0"),
        (["--drafter", "ngram", "--k", "-2"], "k=-2"),
        (["--drafter", "ngram", "-o", "k=2.5"], "k=2.5"),
        (["-o", "nodes=0"], "nodes=0"),
        (["-o", "sources=ngram"], "sources="),
        (["--drafter", "merged"], "sources"),
        (["--drafter", "ngram", "--explain"], "--explain"),
        (["-o", "width=3"], "width"),
        (["-o", "width"], "NAME=VALUE"),
        (["-o", "lm=x", "--draft-model", "y"], "--draft-model"),
        (["--drafter", "nonsense"], "ngram"),
        (["--drafter", "lm"], "--draft-model"),
        (["--drafter", "ngram", "--draft-model", "x"], "--draft-model"),
        (["--rule", "nonsense"], "rejection"),
        (["--rule", "greedy", "--temperature", "1"], "temperature"),
        (["--rule", "topbeta", "--temperature", "1"], "'topbeta' cannot draw at temperature 1"),
        (["--budget", "1"], "'greedy' has no option 'budget'"),
        (["--budget", "1", "--temperature", "1"], "'coupled' has no option 'budget'"),
        (["--rule", "block", "--budget", "1"], "'block' has no option 'budget'"),
        (["--rule", "lenient", "--budget", "-1"], "budget=-1"),
        (["--rule", "lenient", "--budget", "nan"], "budget=nan"),
        (["--rule", "lenient", "--budget", "1", "--rule-option", "budget=2"], "--budget"),
        (["--rule", "lenient", "--rule-option", "epsilon=0.1"], "'epsilon'"),
        (["--rule", "lenient", "--rule-option", "lenience"], "NAME=VALUE"),
        (["--rule", "lenient", "--rule-option", "lenience=0"], "lenience=0"),
        (["--runtime", "fast"], "runtime 'fast' does not exist; choose one of: dense, transformers"),
        (["--runtime", "dense", "--dtype", "float64"], "float64"),
        (["--runtime", "transformers", "--dtype", "int8"], "int8 weights need the dense runtime"),
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "2"], "top_p"),
        (["--logit-bias", "3"], "NAME=VALUE"),
        (["--logit-bias", "x=1"], "logit_bias"),
        (["--logit-bias", "[1]=2"], "logit_bias"),
        (["--logit-bias", "{}=2"], "logit_bias"),
        (["--logit-bias", "5=[2]"], "logit_bias"),
        (["--logit-bias", "5=1", "--logit-bias", " 5=2"], "twice"),
        (["-o", "k=3", "-o", "k=3"], "twice"),
        (["-o", "k=3", "--k", "4"], "--k"),
        (["--model", ""], "--model"),
        (["--draft-model", ""], "--draft-model"),
        (["--drafter", ""], "--drafter"),
        (["--device", ""], "--device"),
        (["--rule", ""], "rejection"),
        (["--dtype", ""], "dtype"),
        (["--device", "nope"], "nope"),
        (["--json", "--logprobs", "-3"], "logprobs=-3"),
        (["--max-new-tokens", "0"], "max_new_tokens=0"),
        (["--max-new-tokens", "2", "--min-new-tokens", "3"], "min_new_tokens=3"),
        (["--stop", ""], "stop"),
        (["--threads", "0"], "--threads"),
        (["--threads", "1000000000"], "--threads"),
        (["--dtype", "int4"], "int4"),
        (["--raw", "--system", "x"], "--system"),
        (["-n", "0"], "-n 0"),
        (["--logprobs", "2"], "--json"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    """Faults 94, 141: exit code 2 and one line that names the option; no model was loaded. A dry run says the same."""
    monkeypatch.setattr("specdecode.models.loading.read_model", lambda *_, **__: pytest.fail("a model was loaded"))
    assert said in (error := (result := cli("generate", "hi", *args)).error)
    assert result.code == 2
    assert cli("generate", "hi", *args, "--dry-run").error == error


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["generate", "hi", "--model", "/no/such/folder"], "/no/such/folder"),
        (["demo", "--model", ""], "--model"),
        (["demo", "--max-new-tokens", "0"], "max_new_tokens=0"),
    ],
)
def test_a_model_is_not_loaded_in_vain(cli: Cli, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str) -> None:
    monkeypatch.setattr("specdecode.models.loading.read_model", lambda *_, **__: pytest.fail("a model was loaded"))
    assert said in cli(*args).error


@pytest.mark.parametrize(
    "args", [["--nonsense"], ["--k", "x"], ["--k", "2.5"], ["--temperature", "warm"], ["--stop-id", "x"], ["a", "b"]]
)
def test_a_wrong_command_line_exits_with_2(cli: Cli, args: list[str]) -> None:
    """Fault 138: an unknown option is an error."""
    result = cli("generate", "hi", *args)
    assert (result.code, result.out) == (2, "")
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["generate", "hi", "--rule", "nonsense"], 2),
        (["generate", "hi", "--drafter", "nonsense"], 2),
        (["generate", ""], 1),
        (["generate", "hi", "--model", "/no/such/folder"], 1),
        (["bench", "--arm", "nonsense"], 2),
        (["bench", "--questions", "/no/such/file"], 1),
        (["calibrate", "--threads", "0"], 2),
        (["datastore", "info", "/no/such/file"], 1),
    ],
)
def test_exit_codes_tell_a_wrong_command_line_from_what_cannot_be_done(cli: Cli, args: list[str], code: int) -> None:
    assert (result := cli(*args)).error
    assert result.code == code


@pytest.mark.parametrize(
    ("args", "command", "named"),
    [
        (["--nope"], "specdecode", "--nope"),
        (["nope"], "specdecode", "nope"),
        (["generate", "hi", "--nope"], "specdecode generate", "--nope"),
        (["generate", "hi", "--top-k", "-"], "specdecode generate", "--top-k"),
        (["generate", "hi", "--k", "many"], "specdecode generate", "--k"),
        (["generate"], "specdecode generate", "prompt"),
        (["generate", "hi", "ho"], "specdecode generate", "ho"),
        (["datastore"], "specdecode datastore", "command"),
        (["datastore", "build", "x"], "specdecode datastore build", "--out"),
        (["tune", "nope"], "specdecode tune", "nope"),
    ],
)
def test_a_command_line_that_makes_no_sense_gets_one_line(cli: Cli, args: list[str], command: str, named: str) -> None:
    result = cli(*args)
    assert named in result.error
    assert result.error.endswith(f"; see `{command} --help`")
    assert result.code == 2


@pytest.mark.parametrize(
    ("option", "named"),
    [(["--k"], "--k"), (["--json=3"], "--json"), (["--logit-bias", f"{'9' * 400}=1"], "logit_bias")],
)
def test_so_does_one_whose_values_make_no_sense(cli: Cli, folder: Path, option: list[str], named: str) -> None:
    result = cli("generate", "hi", "--model", folder, "--runtime", "transformers", *option)
    assert named in result.error
    assert result.code == 2


@pytest.mark.parametrize("value", [10**400, -(10**400), True, "1", None, float("nan")])
def test_numbers_that_are_none_are_refused(value: object) -> None:
    import specdecode as sd

    refused: list[Callable[[], object]] = [
        lambda: sd.Sampling(repetition_penalty=value),  # type: ignore[arg-type]
        lambda: sd.Sampling(logit_bias={3: value}),  # type: ignore[dict-item]
        lambda: sd.make_rule("topbeta", tau=value),
    ]
    for make in refused:
        with pytest.raises(sd.SpecError):
            make()


def test_without_a_command_there_is_help_and_a_version(cli: Cli) -> None:
    helped, version = cli(), cli("--version")
    assert (helped.code, helped.err) == (0, "")
    assert "calibrate" in helped.out
    assert version.out.startswith("specdecode 0.")


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_an_empty_prompt_is_refused(cli: Cli, prompt: str) -> None:
    assert "empty" in cli("generate", prompt).error
    assert "empty" in cli("generate", "-", stdin=prompt).error
