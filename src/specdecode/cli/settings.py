"""The options that commands share, as values: a command with a parameter of one of these types takes its fields.

Says what can be asked, not what it means: `resolve` does. Light on purpose, for `--help` reads it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer


def flag(panel: str, text: str, *flags: str) -> Any:
    return typer.Option(*flags, help=text, rich_help_panel=panel, show_default=False)


MODEL, DRAFTING, SAMPLING, GRAMMAR = "Model", "Drafting", "Sampling", "Grammar"
LIMITS, OUTPUT = "Limits", "Output"


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and how it runs. None leaves a choice to the library."""

    model: Annotated[str | None, flag(MODEL, "Folder, hub id or .gguf file; the default model if absent.")] = None
    dtype: Annotated[str | None, flag(MODEL, "Of the weights: float32, bfloat16, float16 or int8.")] = None
    runtime: Annotated[str | None, flag(MODEL, "dense (the fast one) or transformers; what fits if absent.")] = None
    device: Annotated[str | None, flag(MODEL, "Where to run, such as cpu or cuda.")] = None
    threads: Annotated[int | None, flag(MODEL, "CPU threads to use.")] = None

    @property
    def of_the_model(self) -> dict[str, Any]:
        """These settings alone, of a command that has more."""
        return {f.name: getattr(self, f.name) for f in fields(ModelSettings)}


@dataclass(frozen=True)
class Settings(ModelSettings):
    """Model, drafting, sampling, grammar and limits. Defaults are the library's own; None leaves a choice to it."""

    drafter: Annotated[str | None, flag(DRAFTING, "See `specdecode methods`; the default one if absent.")] = None
    draft_model: Annotated[str | None, flag(DRAFTING, "A smaller model, for the drafters lm and auto.")] = None
    k: Annotated[int | None, flag(DRAFTING, "Tokens in a draft.")] = None
    option: Annotated[list[str], flag(DRAFTING, "name=value, another option of the drafter.", "--option", "-o")] = (
        field(default_factory=list)
    )
    explain: Annotated[bool, flag(DRAFTING, "Tell how the drafter auto chose.", "--explain")] = False
    rule: Annotated[str | None, flag(DRAFTING, "How drafts are verified; see `specdecode methods`.")] = None
    rule_option: Annotated[list[str], flag(DRAFTING, "name=value, an option of the rule.")] = field(
        default_factory=list
    )
    budget: Annotated[float | None, flag(DRAFTING, "The most nats that a relaxed rule may spend on an answer.")] = None

    temperature: Annotated[float | None, flag(SAMPLING, "0 is greedy (generate's default).")] = None
    top_k: Annotated[int | None, flag(SAMPLING, "Only the k likeliest tokens.")] = None
    top_p: Annotated[float | None, flag(SAMPLING, "Only the likeliest tokens of together this probability.")] = None
    min_p: Annotated[float | None, flag(SAMPLING, "Only tokens this likely, compared with the likeliest.")] = None
    typical_p: Annotated[float | None, flag(SAMPLING, "Locally typical sampling of this mass.")] = None
    repetition_penalty: Annotated[float, flag(SAMPLING, "Above 1 makes tokens seen before less likely.")] = 1.0
    presence_penalty: Annotated[float, flag(SAMPLING, "Subtracted once from the logits of generated tokens.")] = 0.0
    frequency_penalty: Annotated[float, flag(SAMPLING, "Subtracted for each time a token was generated.")] = 0.0
    logit_bias: Annotated[list[str], flag(SAMPLING, "ID=VALUE, added to the logit of a token.")] = field(
        default_factory=list
    )
    no_repeat_ngram: Annotated[int, flag(SAMPLING, "No n-gram of this size appears twice.")] = 0
    suppress: Annotated[list[int], flag(SAMPLING, "A token id that is never chosen.")] = field(default_factory=list)
    seed: Annotated[int | None, flag(SAMPLING, "The same seed gives the same text.")] = None

    json_schema: Annotated[str | None, flag(GRAMMAR, "A JSON schema that the answer fits, or its file.")] = None
    regex: Annotated[str | None, flag(GRAMMAR, "A regular expression that matches the whole answer.")] = None
    grammar: Annotated[str | None, flag(GRAMMAR, "A file with a grammar of the answer, in Lark's form.")] = None

    max_new_tokens: Annotated[int, flag(LIMITS, "The most new tokens (128).")] = 128
    min_new_tokens: Annotated[int, flag(LIMITS, "No end token before this many.")] = 0
    stop: Annotated[list[str], flag(LIMITS, "A string that ends the answer.")] = field(default_factory=list)
    stop_id: Annotated[list[int], flag(LIMITS, "A token id that ends the answer.")] = field(default_factory=list)
    include_stop: Annotated[bool, flag(LIMITS, "Keep the stop string in the text.", "--include-stop")] = False
    ignore_eos: Annotated[bool, flag(LIMITS, "Go on past end tokens.", "--ignore-eos")] = False


@dataclass(frozen=True)
class Asked:
    """What `generate` is asked beyond the settings."""

    raw: Annotated[bool, flag(OUTPUT, "The prompt as it is, without the chat template.", "--raw")] = False
    system: Annotated[str | None, flag(OUTPUT, "A system message for the chat template.")] = None
    n: Annotated[int, flag(OUTPUT, "How many samples.", "-n")] = 1
    logprobs: Annotated[int | None, flag(OUTPUT, "Alternatives to report for each token, in --json.")] = None
    json: Annotated[bool, flag(OUTPUT, "Print one JSON document and nothing else.", "--json")] = False
    compare: Annotated[bool, flag(OUTPUT, "Decode plainly too, and compare.", "--compare")] = False
    dry_run: Annotated[bool, flag(OUTPUT, "Show the resolved settings and stop.", "--dry-run")] = False


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, taking each field of its dataclass parameters as a keyword of its own, as typer reads them."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @wraps(command)
    def flat(**given: Any) -> None:
        whole = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        command(**whole, **given)

    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            parameters += [_keyword(f.name, types[f.name], _default(f)) for f in fields(groups[name])]
        else:
            parameters.append(_keyword(name, hints[name], parameter.default))
    flat.__dict__["__signature__"] = inspect.Signature(parameters)
    flat.__annotations__ = {p.name: p.annotation for p in parameters}
    return flat


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(f: Field[Any]) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()
