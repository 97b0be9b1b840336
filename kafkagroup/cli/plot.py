"""The command `kafkagroup plot`: pictures of recorded samples."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from kafkagroup.cli.common import exit_on_error


class Picture(str, Enum):
    """What to draw; the values are the names of the functions of `kafkagroup.plots`."""

    OVERVIEW = "overview"
    LAG = "lag"
    THROUGHPUT = "throughput"
    ASSIGNMENT = "assignment"
    LATENCY = "latency"


def plot(
    file: Annotated[Path, typer.Argument(help="The samples that `metrics.start(spark, file=…)` has written.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture; its ending names the format: png, svg, pdf.")
    ],
    picture: Annotated[Picture, typer.Option("--picture", "-p", help="Which picture to draw.")] = Picture.OVERVIEW,
    query: Annotated[str | None, typer.Option(help="The query's name; else the one with the most samples.")] = None,
    source: Annotated[int | None, typer.Option(help="The number of the source in the query.")] = None,
) -> None:
    """Draw a file of samples: lag, throughput, assignment and latency over time. Needs the extra `plots`."""
    with exit_on_error():
        # matplotlib takes half a second to load, and needs an extra.
        from kafkagroup import plots
        from kafkagroup.metrics import read_samples

        draw = getattr(plots, picture.value)
        figure = draw(read_samples(file), query=query, source=source)
        try:
            figure.savefig(output, dpi=150)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(str(error), param_hint="--output") from None
        typer.echo(f"Wrote {output}.")
