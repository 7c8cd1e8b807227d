"""A model given by its sizes alone (the dict of a request) as a Model."""

from __future__ import annotations

from typing import Any

from rooflm.catalogue.model import MLP, Attention, Block, Model


def model_from_sizes(sizes: dict[str, Any]) -> Model:
    """Plain attention and MLP blocks from layers, hidden, heads, kv_heads, ffn, vocab and gated.

    Optional: name, positions (learned), tied, norm ("layer" brings biases everywhere, as in GPT), head_dim.

    >>> from rooflm.catalogue.model import parameters
    >>> sizes = {"layers": 48, "hidden": 6144, "heads": 64, "kv_heads": 64, "ffn": 24576, "vocab": 51200}
    >>> model = model_from_sizes(sizes | {"gated": False, "positions": 2048, "tied": True, "norm": "layer"})
    >>> round(float(parameters(model)) / 1e9, 2)  # Korthikanti et al. 2022: "22B"
    22.07
    """
    biased = sizes.get("norm") == "layer"
    attention = Attention(
        heads=sizes["heads"],
        kv_heads=sizes["kv_heads"],
        head_dim=sizes.get("head_dim", sizes["hidden"] // sizes["heads"]),
        bias=biased,
        out_bias=biased,
        rope=not sizes.get("positions", 0),
    )
    block = Block(sizes["layers"], attention, MLP(sizes["ffn"], gated=bool(sizes["gated"]), bias=biased))
    return Model(
        name=str(sizes.get("name", "unnamed")),
        hidden=sizes["hidden"],
        vocab=sizes["vocab"],
        blocks=(block,),
        positions=sizes.get("positions", 0),
        tied=bool(sizes.get("tied", False)),
        norm=str(sizes.get("norm", "rms")),
    )
