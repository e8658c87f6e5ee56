"""Print a script that completes commands, options and files for a shell.

examples:
  source <(headrace completion bash)                                   # this shell
  headrace completion bash > ~/.local/share/bash-completion/completions/headrace
  headrace completion zsh  > ~/.zfunc/_headrace                        # a folder of $fpath
  headrace completion fish > ~/.config/fish/completions/headrace.fish
"""

# shtab writes the scripts from the parsers, so they know every command and every option.

from __future__ import annotations

import argparse
from typing import Any

from headrace.cli import Failed
from headrace.installation import installing

# The words to offer for options that take more than these.
_WORDS = {
    "--scheduler": ("greedy", "multithread", "event"),
    "--log-level": ("trace", "debug", "info", "warning", "error", "critical", "off"),
    "--view": ("page", "none", "rerun", "rerun-web"),
}
_FILES = ("FILE", "PROGRAM")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh", "powershell"), help="the shell")


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    from headrace.cli import make_parser

    try:
        import shtab
    except ImportError:
        raise Failed(f"needs shtab; {installing('completion')}") from None
    parser = make_parser(every=True)
    for command in parser.get_default("commands").values():
        _describe_values(command, shtab.FILE)
    print(shtab.complete(parser, options.shell))
    return 0


def _describe_values(parser: argparse.ArgumentParser, files: Any) -> None:
    """Tell shtab which arguments are files, and which words the others offer."""
    for action in parser._actions:
        for flag in action.option_strings:
            if flag in _WORDS:
                action.choices = _WORDS[flag]
        if action.metavar in _FILES:
            action.complete = files  # type: ignore[attr-defined]  # where shtab looks for it
        elif isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _describe_values(inner, files)
