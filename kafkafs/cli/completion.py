"""`kafkafs completion SHELL`: the script that makes a shell complete kafkafs."""

from __future__ import annotations

import click

from .verb import Verb


@click.command(
    cls=Verb,
    short_help="Print what makes your shell complete kafkafs.",
    examples=[
        ('eval "$(kafkafs completion bash)"', "in ~/.bashrc"),
        ('eval "$(kafkafs completion zsh)"', "in ~/.zshrc, below compinit"),
        ("kafkafs completion fish | source", "in ~/.config/fish/config.fish"),
        (
            "kafkafs cat /data orders/0/off<TAB>",
            "then completes paths inside the log directories, too",
        ),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete verbs, options, LOG_DIRS and paths inside them."""
    from .main import COMPLETE_VARIABLE, PROGRAM
    from .shells import script

    click.echo(script(shell, PROGRAM, COMPLETE_VARIABLE, ctx.find_root().command), nl=False)
