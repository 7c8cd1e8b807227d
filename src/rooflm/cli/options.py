"""Options that several commands share, each written once."""

from __future__ import annotations

from typing import Annotated

import typer

Cluster = Annotated[str | None, typer.Option(help="Cluster (default: the GPU's own).")]
Cp = Annotated[str | None, typer.Option(help="Context parallel degree.")]
Efficiency = Annotated[str | None, typer.Option(help="calibrated, ideal, or factors such as 0.7,0.9.")]
Gpu = Annotated[str | None, typer.Option(help="GPU name or .toml (see `rooflm list gpus`).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object in SI units.")]
Model = Annotated[str, typer.Argument(help="Name, Hugging Face id, config.json or .toml; a comma list makes an axis.")]
On = Annotated[str, typer.Option(help="Where blocks of a grid run: local, ray or ray://host:port.")]
OneModel = Annotated[str, typer.Argument(help="Name, Hugging Face id, config.json or .toml.")]
Out = Annotated[str | None, typer.Option(metavar="FILE", help="Write csv, parquet, nc or json.")]
Output = Annotated[str, typer.Option(help="Output tokens a sequence.")]
Outputs = Annotated[str | None, typer.Option(help="Work out these outputs only (keys of --json).")]
Plot = Annotated[str | None, typer.Option(metavar="FILE", help="Draw a png, svg or html.")]
Pp = Annotated[str | None, typer.Option(help="Pipeline parallel degree.")]
Prompt = Annotated[str, typer.Option(help="Prompt tokens a sequence.")]
SearchedEp = Annotated[str | None, typer.Option(help="Only these expert parallel degrees.")]
SearchedGpu = Annotated[str | None, typer.Option(help="GPU, or a comma list of which the best is chosen.")]
SearchedOn = Annotated[str, typer.Option(help="Where blocks run: local, ray or ray://host:port.")]
SearchedPp = Annotated[str | None, typer.Option(help="Only these pipeline parallel degrees.")]
SearchedSets = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Any other input; lists are searched.")
]
SearchedTp = Annotated[str | None, typer.Option(help="Only these tensor parallel degrees.")]
Sensitivity = Annotated[
    bool, typer.Option("--sensitivity", help="Add what one per cent more of each rate and overhead gives.")
]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Any other input by its path.")]
Tp = Annotated[str | None, typer.Option(help="Tensor parallel degree.")]
Zips = Annotated[
    list[str] | None, typer.Option("--zip", metavar="A,B", help="Lists that go in step: pairs, no products.")
]
