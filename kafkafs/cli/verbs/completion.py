"""`kafkafs completion`: prints a shell's completion script."""

from __future__ import annotations

import click

from ..support.verb import Verb


@click.command(
    cls=Verb,
    reads_logs=False,
    short_help="Print a completion script for your shell.",
    examples=[
        ('eval "$(kafkafs completion bash)"', "enable completion, in ~/.bashrc"),
        ('eval "$(kafkafs completion zsh)"', "the same in ~/.zshrc, after compinit"),
        ("kafkafs completion fish | source", "the same in ~/.config/fish/config.fish"),
        (
            "kafkafs cat /data orders/0/off<TAB>",
            "complete paths inside the log directories",
        ),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that lets SHELL complete verbs, options, LOG_DIRS and paths inside them."""
    from ..support.shells import script

    click.echo(script(shell, ctx.find_root().command), nl=False)
