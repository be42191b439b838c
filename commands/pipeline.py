"""`rmqctl pipeline`: what clusters with a deployment of their own need."""

from __future__ import annotations

from pathlib import Path

import click


@click.group("pipeline", no_args_is_help=True)
def command() -> None:
    """Run the commands on Spark where a cluster has its own way to start programs.

    \b
    Example:
      rmqctl pipeline submit-package ./deploy
    """


@command.command("submit-package")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=".")
def submit_package(directory: Path) -> None:
    """Write this program as a zip for executors, a small main program, and print the spark-submit line.

    Executors need a Python of the same minor version with numpy, pyarrow and isal; PySpark comes
    from the cluster.

    \b
    Example:
      rmqctl pipeline submit-package ./deploy
    """
    from rmqctl.pipeline.shipping import submit_package as write

    package = write(directory)
    click.echo(package.line)
