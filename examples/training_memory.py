"""What fills an 80 GB A100 in training the GPT models of 22B to 1T parameters, by recomputation policy.

    python examples/training_memory.py [FIGURE.png]

The four published configurations (Korthikanti et al. 2022, arXiv 2205.05198, table 3), fp16, no ZeRO; selective
recomputation goes with sequence parallelism, as there. Drawn as figure 4 of Optimus (arXiv 2407.14645): without
recomputation none of them fits, with selective or full recomputation all of them do.
"""

from __future__ import annotations

import sys

from studies.training import KORTHIKANTI, POLICIES, memory_rows

SHORT = dict(zip(KORTHIKANTI, ("22B", "175B", "530B", "1T"), strict=True))
SHOWN = ("weights", "gradients", "optimizer", "activations")
GB = 1e9

Table = dict[tuple[str, str], dict[str, float]]


def study() -> tuple[Table, dict[tuple[str, str], bool], float]:
    """(model, policy) -> GB by part and -> whether it fits; GB of the card."""
    sizes: Table = {}
    fits: dict[tuple[str, str], bool] = {}
    capacity = 0.0
    for row in memory_rows():
        key = (row["model"], row["recompute"])
        part = row["part"] if row["part"] in SHOWN else "other"
        parts = sizes.setdefault(key, {})
        parts[part] = parts.get(part, 0.0) + row["bytes"] / GB
        fits[key], capacity = row["fits"], row["capacity"] / GB
    return sizes, fits, capacity


def draw(figure: str, sizes: Table, fits: dict[tuple[str, str], bool], capacity: float) -> None:
    """Stacked bars against the capacity line."""
    from rooflm.plot import Bar, Scale, bars

    made = [
        Bar(policy, parts, f"GPT {SHORT[model]}", capacity, "" if fits[model, policy] else "OOM")
        for (model, policy), parts in sizes.items()
    ]
    bars(
        "Memory of one A100 80 GB in training, by recomputation", Scale("memory of the fullest GPU (GB)"), made,
        "GPT models of Korthikanti et al. 2022; selective goes with sequence parallelism", "the card's 80 GiB",
        ("other: logits, context, workspace",),
    ).save(figure)  # fmt: skip


def main(figure: str = "") -> None:
    """Print the table and draw it."""
    sizes, fits, capacity = study()
    print(f"GB of the fullest GPU; the card has {capacity:.1f}")
    print(f"{'model':>6s}  {'recompute':9s} {'state':>7s} {'activations':>12s} {'total':>7s}")
    for (model, policy), parts in sizes.items():
        state = sum(parts[p] for p in SHOWN[:3])
        ending = "" if fits[model, policy] else "  OOM"
        total = sum(parts.values())
        print(f"{SHORT[model]:>6s}  {policy:9s} {state:7.1f} {parts['activations']:12.1f} {total:7.1f}{ending}")
    for policy in POLICIES:
        held = [SHORT[m] for m, p in fits if p == policy and fits[m, p]]
        print(f"{policy}: {', '.join(held) + ' fit' if held else 'none fits'}")
    if figure:
        draw(figure, sizes, fits, capacity)


if __name__ == "__main__":
    main(*sys.argv[1:2])
