"""The README of a model folder: what it is, what it was made from, how it did on dev, what it is not for."""

from collections.abc import Mapping, Sequence

FRONT = """\
---
library_name: transformers
base_model: {base}
tags: [pmem, memory-policy, {stage}]
---
"""

TEXT = """\
# {title}

A memory policy for `pmem`: beside an agent it reads the task, a bank of facts and the newest steps, edits the bank, and either
writes one short cited reminder or `<no_intervention/>`. Made by `python -m train.{stage}` from `{base}`.

## How it was trained

{facts}

## On dev rows (used for early stopping, so not a test)

{dev}

Test figures with intervals, and the threshold it may speak at, come from `eval.sweep` and `eval.promote`; without a
`threshold.json` made for this model hash the runtime keeps it silent.

## Limits

* It judges snapshots rendered by `pmem.prompt` of the version in `policy.json`; other prompts give meaningless probabilities.
* Its probabilities are raw. They are not calibrated before `eval.sweep` has fitted a calibrator.
* It was trained on the data named above only. New agents and new task families need a new certificate.
"""


def model_card(
    title: str, *, stage: str, base: str, facts: Sequence[str], dev: Mapping[str, float | None], notes: Sequence[str] = ()
) -> str:
    """Markdown with front matter. `dev`: names and values, shown as a table."""
    rows = [f"| {name} | {value:.4g} |" for name, value in dev.items() if value is not None]
    table = "\n".join(["| measure | value |", "| --- | --- |", *rows]) if rows else "No dev rows."
    body = TEXT.format(title=title, stage=stage, base=base, facts="\n".join(f"* {fact}" for fact in (*facts, *notes)), dev=table)
    return FRONT.format(base=base, stage=stage) + "\n" + body
