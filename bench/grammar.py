"""JSON-schema constrained generation on the default model: what drafts are worth where the grammar forces tokens.

Every prompt goes to every arm before the next one comes, greedily and in a rotating order, several rounds; figures are
medians over rounds. Each answer is checked: it is JSON with the required keys, and the ids of plain decoding under the
same schema. Prints a table, then one JSON line. Run on an otherwise idle machine: `python bench/grammar.py`.
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from typing import Any

import specdecode as sd

ARMS = ("null", "forced", "ngram", "auto")
TOKENS = 240


def record(**properties: Any) -> dict[str, Any]:
    """The schema of an object that has all these properties and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text(most: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": most}


def several(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 9999}
ORDER = (
    "Order 4471 of 12 March: Maria Gonzalez, 18 Harbour Street, 90210 Portville, ordered 3 oil lamps at 45 dollars "
    "each, 12 candles at 2 dollars each and 1 brass telescope at 230 dollars. She pays by card; deliver by courier."
)
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "extract": (
        f"Write the following order as JSON.\n\n{ORDER}",
        record(
            order_number=NUMBER,
            customer=record(
                full_name=text(30), street_address=text(40), postal_code={"type": "string", "pattern": "^[0-9]{5}$"}
            ),
            items=several(record(description=text(30), quantity=NUMBER, unit_price=NUMBER), 4),
            payment_method={"enum": ["card", "cash", "transfer"]},
            delivery_method={"enum": ["courier", "post", "collected"]},
        ),
    ),
    "call": (
        "The user says: book a table for four at an Italian restaurant in Lyon on Friday at eight. Call the tool.",
        record(
            tool_name={"const": "book_restaurant_table"},
            arguments=record(
                city_name=text(20),
                cuisine_type={"enum": ["italian", "french", "japanese", "mexican"]},
                number_of_guests=NUMBER,
                day_of_week={"enum": ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]},
                time_of_day=text(10),
            ),
            needs_confirmation={"type": "boolean"},
        ),
    ),
    "invent": (
        "Invent three characters of a story about a lighthouse, as JSON.",
        record(
            characters={
                **several(
                    record(first_name=text(15), occupation=text(25), age_in_years=NUMBER, description=text(80)), 3
                ),
                "minItems": 3,
            }
        ),
    ),
    "judge": (
        "Rate this review as JSON: 'The lamp is beautiful and bright, but it arrived late and the box was torn.'",
        record(
            overall_sentiment={"enum": ["positive", "negative", "mixed"]},
            product_quality=record(score={"enum": [1, 2, 3, 4, 5]}, reason=text(60)),
            delivery_quality=record(score={"enum": [1, 2, 3, 4, 5]}, reason=text(60)),
            would_buy_again={"type": "boolean"},
        ),
    ),
}


def valid(answer: str, schema: dict[str, Any]) -> bool:
    """Whether an answer is JSON with the keys that the schema requires, wherever it requires any."""
    try:
        return has_keys(json.loads(answer), schema)
    except ValueError:
        return False


def has_keys(value: Any, schema: dict[str, Any]) -> bool:
    if schema.get("type") == "object":
        return list(value) == schema["required"] and all(has_keys(value[k], s) for k, s in schema["properties"].items())
    if schema.get("type") == "array":
        return all(has_keys(item, schema["items"]) for item in value)
    return True


def measure(model: sd.Model, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """task -> arm -> tokens per second and per step, the speed-up over plain, and how many answers were right."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    for task, (prompt, schema) in TASKS.items():
        grammar = sd.Grammar.json_schema(schema)
        seen: dict[str, list[sd.Completion]] = {arm: [] for arm in ARMS}
        for i in range(rounds + 1):
            for arm in (*ARMS[i % len(ARMS) :], *ARMS[: i % len(ARMS)]):
                done = model.chat(prompt, drafter=arm, grammar=grammar, max_new_tokens=TOKENS)
                if i:  # the first round warms up
                    seen[arm].append(done)
        plain = seen["null"]
        out[task] = {
            arm: {
                "tokens": len(done[0].tokens),
                "tokens_per_second": median(c.tokens_per_second or 0.0 for c in done),
                "tokens_per_step": median(c.metrics.tokens_per_step for c in done),
                "acceptance": median(c.metrics.accepted / max(1, c.metrics.nodes) for c in done),
                "speed_up": median(p.decode_s / c.decode_s for p, c in zip(plain, done, strict=True)),
                "valid": sum(valid(c.text, schema) for c in done) / rounds,
                "identical": sum(c.tokens == p.tokens for p, c in zip(plain, done, strict=True)) / rounds,
            }
            for arm, done in seen.items()
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    results = measure(sd.load(), parser.parse_args().rounds)
    columns = list(next(iter(results.values()))["null"])
    print(f"{'task':10}{'arm':8}" + "".join(f"{column:>19}" for column in columns))
    for task, arms in results.items():
        for arm, figures in arms.items():
            print(f"{task:10}{arm:8}" + "".join(f"{figures[column]:19.2f}" for column in columns))
    for arm in ARMS:
        print(
            f"{arm}: {median(arms[arm]['speed_up'] for arms in results.values()):.2f} times plain (median over tasks)"
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
