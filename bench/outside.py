"""The certificate judging another engine: transformers' own `generate` on the default model, plain and speculating.

Writes a file of JSON lines for each way of decoding, as `specdecode check --outputs` reads it, and judges it.
Two arms must fail: the ensemble weight, a relaxed option of transformers, and sampling at .8 that is said to be at 1.
Ends with 1 where one passes, or another fails. Counts only, no clock:
`python bench/outside.py [--per-task N] [--tokens N] [--seed N] [--out FOLDER]`.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

import specdecode as sd
from specdecode.bench.questions import read_questions, select
from specdecode.bench.upstream import Generate
from specdecode.certify import judge, read_outputs
from specdecode.models.loading import load_pretrained

LEFT_OUT = range(12, 17)  # layers that the assistant, a copy of the model, does without


@dataclass(frozen=True)
class Arm:
    """temperature: at which it samples, 0 for greedy; said: which one the file says it is. wrong: must fail."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    temperature: float = 1.0
    said: float = 1.0
    assisted: bool = False
    wrong: bool = False


ARMS = (
    Arm("greedy", temperature=0.0, said=0.0),
    Arm("greedy, lookup", {"prompt_lookup_num_tokens": 5}, temperature=0.0, said=0.0),
    Arm("sampled"),
    Arm("sampled, lookup", {"prompt_lookup_num_tokens": 5}),
    Arm("sampled, assistant", assisted=True),
    Arm("sampled, assistant, ensemble weight .5", {"assistant_ensemble_weight": 0.5}, assisted=True, wrong=True),
    Arm("sampled at .8, said to be at 1", temperature=0.8, wrong=True),
)


def without(model: Any, layers: range) -> Any:
    """A copy of the model that does without those layers."""
    short = copy.deepcopy(model)
    kept = [layer for i, layer in enumerate(short.model.layers) if i not in layers]
    for i, layer in enumerate(kept):
        layer.self_attn.layer_idx = i  # its place in the cache
    short.model.layers = torch.nn.ModuleList(kept)
    short.config.num_hidden_layers = len(kept)
    return short


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-task", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    ours, theirs = sd.load(dtype="float32"), load_pretrained(dtype=torch.float32)
    assistant = without(theirs.hf_model, LEFT_OUT)
    prompts = [ours.chat_prompt(question.turns[0]) for question in select(read_questions(), per_task=given.per_task)]
    print(f"{len(prompts)} prompts, {given.tokens} tokens, files in {out}")
    print("| arm | test | outcome | found | limit |\n|---|---|---|---|---|")
    surprises = []
    for arm in ARMS:
        drawn = {"do_sample": True, "temperature": arm.temperature, "top_k": 0} if arm.temperature else {}
        engine = Generate(theirs, {**drawn, **arm.options}, assistant if arm.assisted else None)
        set_seed(given.seed)
        lines = [
            {
                "prompt_ids": list(ids),
                "sampling": {"temperature": arm.said},
                "output_ids": list(engine.run(ids, given.tokens).tokens),
            }
            for ids in prompts
        ]
        path = out / f"{arm.name.replace(' ', '-').replace(',', '')}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        certificate = judge(ours, read_outputs(path))
        for told in certificate.findings:
            if told.found:
                print(f"| {arm.name} | {told.test} | {told.outcome} | {told.found} | {told.limit} |", flush=True)
        if certificate.passed == arm.wrong:
            surprises.append(arm.name)
    if surprises:
        sys.exit(f"not as expected: {'; '.join(surprises)}")


if __name__ == "__main__":
    main()
