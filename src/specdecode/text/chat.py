"""Messages to prompts, by the tokenizer's own chat template. Knows no model and no session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BadInput, shown
from ..models.pretrained import reason

Messages = str | Sequence[Mapping[str, Any]]  # a string is one message of the user


def check_text(text: str) -> None:
    """Raises BadInput for a string that is no Unicode text: surrogates, which bytes that are not UTF-8 turn into."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"the text holds {text[error.start]!r} at character {error.start}, which is no Unicode character; "
            "give text in UTF-8"
        ) from error


def has_template(tokenizer: Any) -> bool:
    return bool(getattr(tokenizer, "chat_template", None))


def apply_template(tokenizer: Any, messages: Messages) -> tuple[int, ...]:
    """The ids of a conversation, ready for the assistant's next turn.

    Raises BadInput for messages that are none, that the template refuses, or when there is no template."""
    from jinja2 import TemplateError

    turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    if not isinstance(turns, Sequence) or not turns:
        raise BadInput("there are no messages: give at least one, such as {'role': 'user', 'content': 'Hello'}")
    for turn in turns:
        for key in ("role", "content"):
            part = turn.get(key) if isinstance(turn, Mapping) else None
            if not isinstance(part, str):
                raise BadInput(f"a message needs a role and a content, both of them strings, found {shown(turn)}")
            check_text(part)
    if not has_template(tokenizer):
        raise BadInput(
            "this tokenizer has no chat template; give the prompt as plain text (on the command line: --raw)"
        )
    try:
        ids = tokenizer.apply_chat_template(
            list(turns), add_generation_prompt=True, return_dict=False, tokenizer_kwargs={"verbose": False}
        )
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise BadInput(f"the model's chat template refuses these messages: {reason(error)}") from error
    return tuple(ids)
