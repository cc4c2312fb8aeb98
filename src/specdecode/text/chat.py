"""Messages to prompts, by the tokenizer's own chat template. Knows no model and no session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BadInput

Messages = str | Sequence[Mapping[str, Any]]  # a string is one message of the user


def has_template(tokenizer: Any) -> bool:
    return bool(getattr(tokenizer, "chat_template", None))


def apply_template(tokenizer: Any, messages: Messages) -> tuple[int, ...]:
    """The ids of a conversation, ready for the assistant's next turn.

    Raises BadInput for messages that are none, that the template refuses, or when there is no template."""
    from jinja2 import TemplateError

    turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    if not turns:
        raise BadInput("there are no messages: give at least one, such as {'role': 'user', 'content': 'Hello'}")
    for turn in turns:
        if not isinstance(turn, Mapping) or not {"role", "content"} <= turn.keys():
            raise BadInput(f"a message needs a role and a content, found {turn!r:.80}")
    if not has_template(tokenizer):
        raise BadInput(
            "this tokenizer has no chat template; give the prompt as plain text (on the command line: --raw)"
        )
    try:
        ids = tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, return_dict=False, tokenizer_kwargs={"verbose": False}
        )
    except TemplateError as error:
        raise BadInput(f"the model's chat template refuses these messages: {error}") from error
    return tuple(ids)
