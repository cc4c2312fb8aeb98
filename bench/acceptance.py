"""Tokens per step of trees and of verification rules, and what relaxed rules cost for theirs. Counts only, no clock.

`python bench/acceptance.py [trees] [sampled] [relaxed] [--questions FILE] [--per-task N] [--skip SET]`. The default
model drafts for itself with parts of its layers left out, so that any machine gives the same figures. Prints a line an
arm: tokens per step over all prompts, its standard error over prompts, and nats per token.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import specdecode as sd
from specdecode.bench.questions import OURS, read_questions, select
from specdecode.drafters.layer_skip import LayerSkip
from specdecode.drafters.published import PUBLISHED
from specdecode.metrics import Metrics

TOKENS = 48
BATCH = 20
GREEDY, WARM = sd.Sampling(), sd.Sampling(temperature=1.0, seed=1)


@dataclass(frozen=True)
class Arm:
    name: str
    drafter: dict[str, Any]
    rule: Any = None
    sampling: sd.Sampling = GREEDY


def trees() -> Iterator[Arm]:
    for nodes in (8, 16, 32):
        yield Arm(f"chain, {nodes} nodes", {"k": nodes})
        yield Arm(f"static, {nodes} nodes", {"tree": "/".join(PUBLISHED["mc_sim_7b_63"].split("/")[:nodes])})
        yield Arm(f"dynamic, {nodes} nodes", {"tree": f"dynamic:nodes={nodes}"})
        yield Arm(f"optimal, {nodes} nodes", {"tree": f"optimal:nodes={nodes}"})


def sampled() -> Iterator[Arm]:
    for shape, drafter in (("chain of 4", {"k": 4}), ("chain of 8", {"k": 8}), ("tree 4x2x1", {"tree": "4x2x1"})):
        for rule in ("rejection", "block", "traversal"):
            yield Arm(f"{rule}, {shape}", drafter, sd.make_rule(rule), WARM)


def relaxed() -> Iterator[Arm]:
    yield Arm("greedy", {"k": 6}, None)
    for name, option, values in (
        ("lenient", "lenience", (0.5, 0.2, 0.05)),
        ("topbeta", "tau", (1.0, 3.0)),
        ("blockwise", "top", (2, 3)),
        ("bild", "rollback", (1.0, 2.0, 5.0)),
    ):
        for value in values:
            yield Arm(f"{name}, {option} {value}", {"k": 6}, sd.make_rule(name, **{option: value}))
    yield Arm("rejection", {"k": 6}, sd.make_rule("rejection"), WARM)
    for value in (0.7, 0.5, 0.2):
        yield Arm(f"lenient, lenience {value}", {"k": 6}, sd.make_rule("lenient", lenience=value), WARM)
    for shape in ("square", "power"):
        for value in (0.7, 0.5):
            rule = sd.make_rule("distillspec", shape=shape, epsilon=value)
            yield Arm(f"distillspec {shape}, epsilon {value}", {"k": 6}, rule, WARM)
    for value in (0.3, 0.09, 0.02):
        rule = sd.make_rule("typical", epsilon=value, delta=math.sqrt(value))
        yield Arm(f"typical, epsilon {value}", {"k": 6}, rule, WARM)


def measure(model: sd.Model, prompts: list[tuple[int, ...]], arm: Arm, skip: str) -> str:
    drafter = LayerSkip(skip, adaptive=False, confidence=0.0, **arm.drafter)
    found: list[Metrics] = []
    for first in range(0, len(prompts), BATCH):  # rows of a batch do not influence each other
        asked = prompts[first : first + BATCH]
        done = model.generate(asked, drafter=drafter, rule=arm.rule, sampling=arm.sampling, max_new_tokens=TOKENS)
        found += [completion.metrics for completion in done]
    emitted, steps = sum(m.emitted for m in found), sum(m.steps for m in found)
    mean = emitted / steps
    spread = math.sqrt(sum((m.emitted - mean * m.steps) ** 2 for m in found)) / steps  # of a ratio of sums
    nats = sum(m.nats for m in found) / emitted
    kind = "greedy" if arm.sampling.greedy else "T = 1"
    return f"| {arm.name} | {kind} | {mean:.3f} | {spread:.3f} | {nats:.4f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["trees", "sampled", "relaxed"])
    parser.add_argument("--questions", default=str(OURS))
    parser.add_argument("--per-task", type=int, default=2)
    parser.add_argument("--skip", default="a12-16")
    given = parser.parse_args()
    model = sd.load()
    asked = select(read_questions(given.questions), per_task=given.per_task)
    prompts = [model.chat_prompt(question.turns[0]) for question in asked]
    print(f"{len(prompts)} prompts, {TOKENS} tokens, drafts without {given.skip}")
    print("| arm | | tokens per step | +- | nats per token |\n|---|---|---|---|---|")
    for part in given.parts:
        for arm in {"trees": trees, "sampled": sampled, "relaxed": relaxed}[part]():
            print(measure(model, prompts, arm, given.skip), flush=True)


if __name__ == "__main__":
    main()
