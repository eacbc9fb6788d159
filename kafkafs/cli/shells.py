"""What bash, zsh and fish need to complete kafkafs: a script each, and the talk between them.

The script runs `kafkafs` with `_KAFKAFS_COMPLETE=SHELL_complete` and, in `COMP_LINE`, the command
line up to the cursor. Back come lines `TYPE<tab>VALUE<tab>HELP`. TYPE is `plain`; `part`, a value
that goes on, such as a directory in the tree, and gets no space behind it; or `dir`, where the
shell itself completes the names of directories.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Any, ClassVar, Final

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

# Names that mean themselves in every shell. Others are not offered: a name from a log directory
# that nobody vouches for shall not put `$(…)` on a command line.
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
    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one at the cursor, and that one as far as it goes."""
        words = split(os.environ.get("COMP_LINE", ""))
        return words[1:-1], words[-1]

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items = super().get_completions(args, incomplete)
        return [item for item in items if _HARMLESS.fullmatch(str(item.value))]

    def format_completion(self, item: CompletionItem) -> str:
        help_text = " ".join((item.help or "").split())
        return f"{item.type}\t{self.inserted(str(item.value))}\t{help_text}"

    def inserted(self, value: str) -> str:
        """What of `value` the shell puts in the place of the word at the cursor."""
        return value


class Bash(_Shell):
    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH

    def inserted(self, value: str) -> str:
        # Readline's word begins behind the last `:` or `=`, which it takes for the end of a word.
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
    """Puts these in the place of click's own."""
    for shell in SHELLS.values():
        add_completion_class(shell)


def script(shell: str, program: str, variable: str, command: Any) -> str:
    """The script that makes `shell` complete `program`."""
    return SHELLS[shell](command, {}, program, variable).source()


def split(line: str) -> list[str]:
    """Words of a command line that is not yet finished; the last is the one at the cursor, "" after
    a blank. An open quote and a trailing backslash are taken as begun."""
    lexer = shlex.shlex(line + ".", posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return [*words[:-1], words[-1][:-1]]
