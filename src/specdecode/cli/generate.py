"""`specdecode generate`: one prompt, answered."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .settings import Asked, Settings, spread

if TYPE_CHECKING:
    from ..drafters import Drafter
    from ..text.completion import Completion
    from ..text.model import Model
    from .resolve import Resolved


@spread
def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    settings: Settings,
    asked: Asked,
) -> None:
    """Answer a prompt. The text goes to standard output, a summary to standard error."""
    from ..errors import BadInput, BadOption, check_count
    from . import show
    from .resolve import Resolved

    resolved = Resolved.of(settings)
    text = prompt if prompt != "-" else sys.stdin.read() if sys.stdin else ""
    if not text.strip():
        raise BadInput("the prompt is empty; give some text")
    if asked.raw and asked.system is not None:
        raise BadOption("--system goes into the chat template, which --raw leaves out; give one of them")
    if asked.logprobs is not None:
        check_count("logprobs", asked.logprobs, 0)
        if not asked.json:
            raise BadOption("--logprobs are part of the JSON document; add --json")
    if asked.n < 1:
        raise BadOption(f"-n {asked.n}: give at least 1 sample")
    config = {**resolved.describe(), "prompt": text, **asdict(asked)}
    if asked.dry_run:
        show.document(config)
        return
    with show.busy("Loading the model"):
        model, drafter = resolved.load()
    show.measure(model.lm, drafter)
    ids = _encode(model, text, asked)
    if asked.compare:
        model.generate(ids, drafter=None, max_new_tokens=2)  # the first passes are slow, whoever makes them
    done = _answer(model, ids, drafter, resolved, asked)
    versus = show.comparison(done, _plainly(model, ids, resolved, done)) if asked.compare else None
    if asked.json:
        decisions = [asdict(decision) for decision in resolved.told] if settings.explain else None
        completions = [completion.to_dict() for completion in done]
        show.document({"config": config, "completions": completions, "comparison": versus, "decisions": decisions})
        return
    _report(done, versus)
    for line in show.explanation(resolved.told):
        show.note(line)


def _encode(model: Model, text: str, asked: Asked) -> tuple[int, ...]:
    if asked.raw or not (model.has_chat_template or asked.system):
        return model.encode(text)
    system = [] if asked.system is None else [{"role": "system", "content": asked.system}]
    return model.chat_prompt([*system, {"role": "user", "content": text}])


def _answer(model: Model, ids: tuple[int, ...], drafter: Drafter, resolved: Resolved, asked: Asked) -> list[Completion]:
    """Streamed where there is one answer to be read; several are printed when they are all there."""
    from . import show

    options: dict[str, Any] = {"drafter": drafter, "logprobs": asked.logprobs, **resolved.request()}
    if asked.n == 1 and not asked.json:
        return [show.stream(model.stream(ids, **options))]
    done = model.generate(ids, n=asked.n, **options)
    if not asked.json:
        for i, completion in enumerate(done):
            print(f"--- {i + 1}\n{completion.text}", flush=True)
    return done


def _plainly(model: Model, ids: tuple[int, ...], resolved: Resolved, done: list[Completion]) -> list[Completion]:
    """The same request without drafts, with the seed that was used."""
    request = {**resolved.request(), "sampling": replace(resolved.sampling, seed=done[0].seed)}
    return model.generate(ids, n=len(done), drafter=None, **request)


def _report(done: list[Completion], versus: dict[str, Any] | None) -> None:
    from . import show

    for completion in done:
        for line in show.summary(completion):
            show.note(line)
    if show.in_colour(sys.stdout) and len(done) == 1:
        show.note(f"colours: {show.legend()}", dim=False)
    if versus is not None:
        same = "the text is identical" if versus["identical"] else _difference(done[0].rule)
        show.note(
            f"plain decoding: {show.figure(versus['plain_tokens_per_second'])} tokens/s; "
            f"speed-up {show.figure(versus['speed_up'], 2)}; {same}"
        )


def _difference(rule: str) -> str:
    """What it means that two texts differ. The greedy and the coupled rule promise the text, others the law at most."""
    from ..verify import RULES

    drawn_anew = RULES[rule].lossless and rule not in ("greedy", "coupled")
    return "the text is another draw from the same law" if drawn_anew else "the text differs"
