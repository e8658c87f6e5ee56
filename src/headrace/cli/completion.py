"""``headrace completion``: scripts that complete the command in bash, zsh and fish.

The scripts are generated from the parsers, so they know every command and every option.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["add_arguments", "main"]

EPILOG = """\
examples:
  source <(headrace completion bash)                                   # this shell
  headrace completion bash > ~/.local/share/bash-completion/completions/headrace
  headrace completion zsh  > ~/.zfunc/_headrace                        # a folder of $fpath
  headrace completion fish > ~/.config/fish/completions/headrace.fish
"""

# The words to offer for options that take more than these.
_WORDS = {
    "--scheduler": ("greedy", "multithread", "event"),
    "--log-level": ("trace", "debug", "info", "warning", "error", "critical", "off"),
    "--view": ("page", "none", "rerun", "rerun-web"),
}
_FILES = ("FILE", "PROGRAM")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = "Print a script that completes commands, options and files for a shell."
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from headrace.cli import COMMANDS, make_parser

    parser = make_parser(every=True)
    commands = [
        _Command(name, COMMANDS[name][1], _options(made), _positionals(made))
        for name, made in parser.get_default("commands").items()
    ]
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](commands))
    return 0


@dataclass(frozen=True, slots=True)
class _Option:
    flags: tuple[str, ...]
    text: str
    takes_value: bool
    is_repeated: bool
    words: tuple[str, ...]
    is_file: bool


@dataclass(frozen=True, slots=True)
class _Command:
    name: str
    text: str
    options: list[_Option]
    positionals: list[_Option]

    @property
    def flags(self) -> list[str]:
        return [flag for option in self.options for flag in option.flags]


def _options(parser: argparse.ArgumentParser) -> list[_Option]:
    return [_option(action) for action in parser._actions if action.option_strings]


def _positionals(parser: argparse.ArgumentParser) -> list[_Option]:
    return [_option(action) for action in parser._actions if not action.option_strings]


def _option(action: argparse.Action) -> _Option:
    words = tuple(map(str, action.choices)) if action.choices is not None else ()
    for flag in action.option_strings:
        words = _WORDS.get(flag, words)
    return _Option(
        tuple(action.option_strings),
        (action.help or "").replace("%%", "%"),
        action.nargs != 0,
        isinstance(action, argparse._AppendAction),
        words,
        action.metavar in _FILES,
    )


def _bash(commands: list[_Command]) -> str:
    lines = [
        "# bash completion for headrace",
        "_headrace() {",
        '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" command="" word',
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '        if [[ $word == -- ]]; then COMPREPLY=($(compgen -f -- "$cur")); return; fi',
        '        if [[ -z $command && $word != -* ]]; then command="$word"; fi',
        "    done",
        '    case "$command" in',
        f"    '') {_offer([command.name for command in commands] + ['--help', '--version'])} ;;",
    ]
    for command in commands:
        lines += [f"    {command.name})", '        case "$prev" in']
        for option in command.options:
            if option.takes_value:
                flags = "|".join(option.flags)
                lines.append(f"        {flags}) {_values(option)} return ;;")
        lines += ["        esac", f"        if [[ $cur == -* ]]; then {_offer(command.flags)}"]
        for positional in command.positionals[:1]:
            if positional.words or positional.is_file:
                lines.append(f"        else {_values(positional)}")
        lines += ["        fi ;;"]
    lines += ["    esac", "}", "complete -o filenames -F _headrace headrace"]
    return "\n".join(lines)


def _offer(words: Iterable[str]) -> str:
    return f"COMPREPLY=($(compgen -W '{' '.join(words)}' -- \"$cur\"));"


def _values(option: _Option) -> str:
    if option.words:
        return _offer(option.words)
    return 'COMPREPLY=($(compgen -f -- "$cur"));' if option.is_file else "COMPREPLY=();"


def _zsh(commands: list[_Command]) -> str:
    lines = [
        "#compdef headrace",
        "_headrace() {",
        "    local context state line",
        "    local -a commands",
        "    commands=(",
        *(f"        {_zsh_quoted(f'{command.name}:{command.text}')}" for command in commands),
        "    )",
        (
            "    _arguments -C '(- *)--help[show help]' '(- *)--version[show the version]' "
            "'1:command:->command' '*::argument:->argument'"
        ),
        '    case "$state" in',
        "    command) _describe -t commands command commands ;;",
        "    argument)",
        '        case "$line[1]" in',
    ]
    for command in commands:
        specs = [_zsh_option(option) for option in command.options]
        specs += [f"{n}:{_zsh_action(each)}" for n, each in enumerate(command.positionals, 1)]
        specs += ["*:argument:_files"]
        lines.append(f"        {command.name}) _arguments {' '.join(map(_zsh_quoted, specs))} ;;")
    lines += [
        "        esac ;;",
        "    esac",
        "}",
        'if [ "$funcstack[1]" = _headrace ]; then _headrace "$@"; else compdef _headrace headrace; fi',
    ]
    return "\n".join(lines)


def _zsh_option(option: _Option) -> str:
    text = option.text.replace("[", "(").replace("]", ")").replace(":", " ")
    # One spec for the last, longest form is enough to offer and to describe the option.
    value = f":{_zsh_action(option)}" if option.takes_value else ""
    return f"{'*' if option.is_repeated else ''}{option.flags[-1]}[{text}]{value}"


def _zsh_action(option: _Option) -> str:
    if option.words:
        return f"value:({' '.join(option.words)})"
    return "file:_files" if option.is_file else "value: "


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(commands: list[_Command]) -> str:
    lines = ["# fish completion for headrace", "complete -c headrace -f"]
    lines += [
        f"complete -c headrace -n __fish_use_subcommand -a {command.name} -d {_fish_quoted(command.text)}"
        for command in commands
    ]
    for command in commands:
        where = f"complete -c headrace -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
            )
            value = ""
            if option.words:
                value = f" -x -a '{' '.join(option.words)}'"
            elif option.takes_value:
                value = " -r -F" if option.is_file else " -x"
            lines.append(f"{where} {flags}{value} -d {_fish_quoted(option.text)}")
        for positional in command.positionals[:1]:
            if positional.words:
                lines.append(f"{where} -a '{' '.join(positional.words)}'")
            elif positional.is_file:
                lines.append(f"{where} -F")
    return "\n".join(lines)


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
