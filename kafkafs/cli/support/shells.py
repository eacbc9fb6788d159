"""Completion scripts for bash, zsh and fish, and the protocol between them and kafkafs.

A script runs `kafkafs` with `_KAFKAFS_COMPLETE=SHELL_complete` and the command line up to the
cursor in `COMP_LINE`. kafkafs prints lines `TYPE<tab>VALUE<tab>HELP`. TYPE is `plain`; `part` for
an incomplete value, such as a directory in the tree, which gets no trailing space; or `dir`, for
which the shell completes directory names itself.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Any, ClassVar, Final

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

PROGRAM: Final = "kafkafs"
COMPLETE_VARIABLE: Final = "_KAFKAFS_COMPLETE"

# Names without special meaning in any shell. Others are not offered: an untrusted log directory
# must not be able to put `$(…)` on a command line.
_HARMLESS: Final = re.compile(r"[\w./:%@+=,^-]*")

_BASH: Final = """\
%(complete_func)s() {
    local type value help
    while IFS=$'\\t' read -r type value help; do
        case $type in
            dir) compopt -o dirnames -o nospace ;;
            part) COMPREPLY+=("$value"); compopt -o nospace ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH: Final = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local -a plain part described
    local line type value help
    for line in "${(@f)$(COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" \\
            %(complete_var)s=zsh_complete $words[1] 2>/dev/null)}"; do
        type="${line%%%%$'\\t'*}" line="${line#*$'\\t'}"
        value="${line%%%%$'\\t'*}" help="${line#*$'\\t'}"
        case $type in
            dir) _path_files -/ ;;
            part) part+=("$value") ;;
            plain) [[ -n $help ]] && described+=("${value//:/\\\\:}:$help") || plain+=("$value") ;;
        esac
    done
    (( $#described )) && _describe -V %(prog_name)s described
    (( $#part )) && compadd -V parts -S '' -a part
    (( $#plain )) && compadd -V names -a plain
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH: Final = """\
function %(complete_func)s
    COMP_LINE=(commandline -cp | string collect) %(complete_var)s=fish_complete \\
            %(prog_name)s 2>/dev/null | while read -l -d \\t type value help
        switch $type
            case dir
                __fish_complete_directories $value
            case part plain
                printf '%%s\\t%%s\\n' $value $help
        end
    end
end
complete --no-files --keep-order --command %(prog_name)s --arguments '(%(complete_func)s)'
"""


class _Shell(ShellComplete):
    """What the shells have in common. Click's own scripts know no incomplete values, so a space
    would follow each directory, and bash would insert the text before a `:` twice."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Returns the words before the cursor, and the incomplete word at the cursor."""
        words = split(os.environ.get("COMP_LINE", ""))
        return words[1:-1], words[-1]

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items = super().get_completions(args, incomplete)
        return [item for item in items if _HARMLESS.fullmatch(str(item.value))]

    def format_completion(self, item: CompletionItem) -> str:
        help_text = " ".join((item.help or "").split())
        return f"{item.type}\t{self.inserted(str(item.value))}\t{help_text}"

    def inserted(self, value: str) -> str:
        """Returns the part of `value` that the shell substitutes for the word at the cursor."""
        return value


class Bash(_Shell):
    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH

    def inserted(self, value: str) -> str:
        # Readline ends words at `:` and `=`, so its current word begins after the last of them.
        _, incomplete = self.get_completion_args()
        breaks = [char for char in ":=" if char in os.environ.get("COMP_WORDBREAKS", "")]
        before = max((incomplete.rfind(char) for char in breaks), default=-1) + 1
        return value.removeprefix(incomplete[:before])


class Zsh(_Shell):
    name: ClassVar[str] = "zsh"
    source_template: ClassVar[str] = _ZSH


class Fish(_Shell):
    name: ClassVar[str] = "fish"
    source_template: ClassVar[str] = _FISH


SHELLS: Final[dict[str, type[_Shell]]] = {shell.name: shell for shell in (Bash, Zsh, Fish)}


def register() -> None:
    """Replaces click's own completion classes by these."""
    for shell in SHELLS.values():
        add_completion_class(shell)


def script(shell: str, command: Any) -> str:
    """Returns the script that makes `shell` complete the program."""
    return SHELLS[shell](command, {}, PROGRAM, COMPLETE_VARIABLE).source()


def split(line: str) -> list[str]:
    """Splits an unfinished command line into words; the last is the one at the cursor, "" after a
    space. An open quote or a trailing backslash is accepted."""
    lexer = shlex.shlex(line + ".", posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return [*words[:-1], words[-1][:-1]]
