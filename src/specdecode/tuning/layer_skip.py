"""Which parts of a model's layers its drafts are best without: a Bayesian search by measured tokens per second
(Draft & Verify, Zhang et al. 2024, 2309.08168, section 3.3).

A trial decodes prompts with one set, beside plain decoding of the same prompts, and counts their ratio: a machine that
is busy for a while then slows both. Trials are kept in a file one by one, so that a search goes on where it was left.
Knows models and clocks; neither the benchmark nor the command line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..drafters import Drafter, skip_sets
from ..drafters.layer_skip import LayerSkip
from ..drafters.skip_sets import TUNED, SkipSet
from ..errors import BadOption, Incompatible, LoadError, check_count

if TYPE_CHECKING:
    from ..text.model import Model

PROMPTS = (  # of our own: none is a question of a benchmark
    "Describe the way from a grain of wheat to a loaf of bread.",
    "Write a letter to a friend who is moving to another town.",
    "What should one look at before buying a used bicycle?",
    "Explain to a child why the moon changes its shape.",
)
FIRST_MOST = 3  # parts that the first random sets leave out


@dataclass(frozen=True)
class Search:
    """trials: sets to try, those of an earlier search included. tokens: decoded for each prompt. name: what the best
    set is kept under. prompts: what to decode. Raises BadOption for counts that are none."""

    trials: int = 100
    tokens: int = 32
    name: str = TUNED
    prompts: Sequence[str] = PROMPTS

    def __post_init__(self) -> None:
        check_count("trials", self.trials, 1)
        check_count("tokens", self.tokens, 2)
        skip_sets.check_name(self.name)
        if not self.prompts:
            raise BadOption("there are no prompts to decode; give one at least")


@dataclass(frozen=True)
class Found:
    """The best set of a search, the speed-up over plain decoding that it reached, and the tokens per step."""

    skip: SkipSet
    speed_up: float
    tokens_per_step: float
    trials: int
    path: Path


def search(model: Model, asked: Search, tell: Callable[[int, float], None] = lambda trial, best: None) -> Found:
    """The best set that was found, kept under its name. tell: (number of the trial, the best speed-up so far).

    Raises Incompatible for a model whose layers cannot be run in part, or where optuna is not installed."""
    if not model.lm.capabilities.sublayers:
        raise Incompatible("this model's layers have no parts to skip")
    study = _study(asked.name, model.lm.signature)
    prompts = [model.prompt(prompt) for prompt in asked.prompts]
    _decode(model, prompts, None, asked.tokens)  # the first passes are slow, whoever makes them
    if not study.trials:
        _begin(study, model.lm.n_layers)
    while (done := len(_finished(study))) < asked.trials:
        trial = study.ask()
        skip = _suggested(trial, model.lm.n_layers)
        speed_up, per_step = _try(model, prompts, skip, asked.tokens)
        trial.set_user_attr("skip", skip.text)
        trial.set_user_attr("tokens_per_step", per_step)
        study.tell(trial, speed_up)
        tell(done + 1, study.best_value)
    best = study.best_trial
    winner = SkipSet.parse(best.user_attrs["skip"])
    assert winner is not None
    found = {"speed_up": best.value, "tokens_per_step": best.user_attrs["tokens_per_step"]}
    path = skip_sets.save(asked.name, model.lm.signature, winner, found)
    return Found(winner, found["speed_up"], found["tokens_per_step"], len(_finished(study)), path)


def _study(name: str, signature: str) -> Any:
    """The search so far, or a new one. Raises LoadError for a file that holds none."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise Incompatible(
            "tuning searches with optuna, which is not installed: pip install 'specdecode[tune]'"
        ) from error
    optuna.logging.set_verbosity(logging.WARNING)
    path = skip_sets.path_of(name, signature).with_suffix(".trials")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):  # the next line would be appended to half of one
        raise LoadError(f"{path} ends in the middle of a line: remove that line, or the file to begin again")
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=20)
    try:
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name="layer skip",
            direction="maximize",
            sampler=sampler,
            load_if_exists=True,
        )
    except (ValueError, KeyError, TypeError, AssertionError) as error:  # as optuna stumbles over it
        raise LoadError(f"{path} holds no search ({type(error).__name__}): remove it to begin again") from error


def _finished(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name == "COMPLETE"]


def _begin(study: Any, n_layers: int) -> None:
    """Sets that leave out little first: with nearly everything left out, nothing is accepted, and the search sees no
    way up."""
    parts = [f"{kind}{layer}" for layer in range(n_layers) for kind in "am"]
    nothing = dict.fromkeys(parts, False)
    step = max(1, len(parts) // 12)
    for size in range(1, FIRST_MOST + 1):
        for first in range(step, len(parts) - size, 2 * step):
            study.enqueue_trial({**nothing, **dict.fromkeys(parts[first : first + size], True)})


def _suggested(trial: Any, n_layers: int) -> SkipSet:
    skipped: dict[str, list[int]] = {"a": [], "m": []}
    for layer in range(n_layers):
        for kind in "am":
            if trial.suggest_categorical(f"{kind}{layer}", [False, True]):
                skipped[kind].append(layer)
    return SkipSet(tuple(skipped["a"]), tuple(skipped["m"]))


def _try(model: Model, prompts: Sequence[tuple[int, ...]], skip: SkipSet, tokens: int) -> tuple[float, float]:
    """(speed-up over plain decoding, tokens per step); the worst there is for a set that leaves nothing to run."""
    if len(skip.attention) == len(skip.feed_forward) == model.lm.n_layers:
        return 0.0, 0.0
    plain, _ = _decode(model, prompts, None, tokens)
    drafted, per_step = _decode(model, prompts, LayerSkip(skip.text), tokens)
    return plain / drafted, per_step


def _decode(
    model: Model, prompts: Sequence[tuple[int, ...]], drafter: Drafter | None, tokens: int
) -> tuple[float, float]:
    """(seconds, tokens per step) over all prompts."""
    began, emitted, steps = perf_counter(), 0, 0
    for prompt in prompts:
        done = model.generate(prompt, drafter=drafter, max_new_tokens=tokens).metrics
        emitted, steps = emitted + done.emitted, steps + done.steps
    return perf_counter() - began, emitted / steps
