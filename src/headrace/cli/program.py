"""Programs that the command runs: a file, a module, or an application class in one of them; and their runs.

A program is executed as ``__main__``, as ``python app.py`` and ``python -m package.module`` would. `runpy` is not
used: it takes the module out of ``sys.modules`` again as soon as the code has been executed, and an application
that is run afterwards would not find its own module (which pickle and dataclasses look for).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from headrace.application import Application, Fragment
from headrace.application.runner import Runner
from headrace.cli import Failed
from headrace.core.errors import message_of, notes_of

if TYPE_CHECKING:
    from headrace.core import Outcome
    from headrace.core.run_options import RunOptions


class ProgramError(Exception):
    """There is no such program, or no such application in it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program: ``app.py``, ``package.module``, or one of them with ``:ClassName``."""

    name: str
    class_name: str = ""
    is_module: bool = False
    """Whether the name is that of a module, also if there is a file or a folder of that name."""

    @classmethod
    def of(cls, text: str) -> Program:
        """Return the program that a word of the command line names."""
        head, colon, tail = text.rpartition(":")
        if colon and head and tail.isidentifier() and not os.path.exists(text):
            return cls(head, tail)
        return cls(text)

    @property
    def is_file(self) -> bool:
        """Whether the name is a path, and not the name of a module."""
        if self.is_module:
            return False
        return self.name.endswith((".py", ".pyw")) or os.sep in self.name or os.path.exists(self.name)

    @property
    def path(self) -> Path:
        """The file to execute, if it is one; for a folder, the ``__main__.py`` in it."""
        path = Path(self.name)
        return path / "__main__.py" if path.is_dir() else path

    def execute(
        self, arguments: list[str], use: Callable[[type[Fragment]], Any], has_run: Callable[[], bool]
    ) -> None:
        """Execute the program, and call `use` with its application class if the program does not run it itself.

        Parameters
        ----------
        arguments
            The program's own arguments, for ``sys.argv``.
        use
            Called with the class that was named, or else with the only application class of a program that has no
            ``if __name__ == "__main__":`` and has run nothing. It runs the application, or draws it.
        has_run
            Returns whether the program has run an application.
        """
        with self._installed(arguments):
            if self.class_name:
                use(self._named_class())
                return
            module, code = self._main_module()
            sys.modules["__main__"] = module
            exec(code, vars(module))
            if has_run() or self._has_guard(module):
                return
            found = [value for value in vars(module).values() if _is_own_application(value, "__main__")]
            if len(found) == 1:
                use(found[0])
            elif found:
                names = ", ".join(f"{self.name}:{kind.__name__}" for kind in found)
                raise ProgramError(
                    f"{self.name} runs nothing and has several applications; name one: {names}"
                )

    @contextmanager
    def _installed(self, arguments: list[str]) -> Iterator[None]:
        """Set ``sys.argv`` and ``sys.path`` for the program, and restore them and ``__main__``."""
        argv, path, main = sys.argv, list(sys.path), sys.modules["__main__"]
        sys.argv = [str(self.path) if self.is_file else self.name, *arguments]
        folder = str(self.path.parent.absolute()) if self.is_file else os.getcwd()
        if not sys.flags.safe_path:
            sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.argv, sys.path[:] = argv, path
            sys.modules["__main__"] = main

    def _main_module(self) -> tuple[ModuleType, CodeType]:
        module = ModuleType("__main__")
        if self.is_file:
            source = self._source()
            code = compile(source, str(self.path), "exec", dont_inherit=True)
            module.__file__ = str(self.path)
            module.__package__ = None
            return module, code
        spec = _find(self.name)
        if spec.submodule_search_locations is not None:
            spec = _find(f"{self.name}.__main__")
        get_code = getattr(spec.loader, "get_code", None)
        found = get_code(spec.name) if get_code is not None else None
        if found is None:
            raise ProgramError(f"module {spec.name!r} has no Python code that could be run")
        module.__file__ = spec.origin
        module.__spec__ = spec
        module.__loader__ = spec.loader
        module.__package__ = spec.parent
        sys.argv[0] = spec.origin or self.name
        return module, found

    def _source(self) -> bytes:
        try:
            with io.open_code(str(self.path.absolute())) as file:
                return file.read()
        except FileNotFoundError:
            raise ProgramError(f"there is no file {str(self.path)!r}") from None
        except OSError as error:
            raise ProgramError(f"{str(self.path)!r} cannot be read: {error.strerror}") from None

    def _named_class(self) -> type[Fragment]:
        """Import the program, without its ``if __name__ == "__main__":``, and return the class that was named."""
        if self.is_file:
            self._source()  # for its errors
            stem = self.path.stem
            # A program may be called json.py; the library of that name must stay.
            name = f"program_{stem}" if stem in sys.modules or stem in sys.stdlib_module_names else stem
            spec = importlib.util.spec_from_file_location(name, self.path.absolute())
            if spec is None or spec.loader is None:
                raise ProgramError(f"{self.name!r} is not a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            _find(self.name)
            module = importlib.import_module(self.name)
        found = getattr(module, self.class_name, None)
        if not (isinstance(found, type) and issubclass(found, Fragment)):
            have = [
                name for name, value in vars(module).items() if _is_own_application(value, module.__name__)
            ]
            what = "is no application class" if hasattr(module, self.class_name) else "does not exist"
            raise ProgramError(
                f"{self.name}:{self.class_name} {what}; {self.name} has {', '.join(have) or 'none'}"
            )
        return found

    def _has_guard(self, module: ModuleType) -> bool:
        """Return whether the program has an ``if __name__ == "__main__":``, and so decides what to run."""
        if module.__file__ is None or not module.__file__.endswith((".py", ".pyw")):
            return False
        import ast

        tree = ast.parse(Path(module.__file__).read_bytes())
        return any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body)


def _is_own_application(value: object, module: str) -> bool:
    return isinstance(value, type) and issubclass(value, Application) and value.__module__ == module


def _find(name: str) -> importlib.machinery.ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and not name.startswith(error.name):
            raise  # a package on the way imports something that is missing
        spec = None
    if spec is None:
        if name.endswith(".__main__"):
            package = name.removesuffix(".__main__")
            raise ProgramError(f"{package!r} is a package without a __main__ module, so it cannot be run")
        raise ProgramError(f"there is no file and no module {name!r}")
    return spec


class Runs(Runner):
    """The runs that a program begins for the duration of a ``with`` block.

    Parameters
    ----------
    instead
        Called with the application in place of each run; by default the run takes place.

    Attributes
    ----------
    began
        The number of runs that began.
    """

    def __init__(self, instead: Callable[[Fragment], None] | None = None) -> None:
        super().__init__()
        self.began = 0
        self._instead = instead
        # The application of the run that began last, if it may still be running; otherwise only its outcome is
        # kept, so that a program with many runs does not keep all their frames.
        self._last: Fragment | None = None
        self._last_outcome: Outcome | None = None
        self._read_settings = False

    def __enter__(self) -> Runs:
        self._runner, Fragment._headrace.runner = Fragment._headrace.runner, self
        return self

    def __exit__(self, *raised: object) -> None:
        Fragment._headrace.runner = self._runner

    @property
    def last_outcome(self) -> Outcome | None:
        """How the run ended that began last; None if there was none, or it has not ended."""
        return self._last_outcome if self._last is None else self._last.outcome

    @property
    def read_settings(self) -> bool:
        """Whether one of the applications has a configuration."""
        return self._read_settings or (self._last is not None and self._last._headrace.config is not None)

    def run(self, fragment: Fragment, limits: RunOptions) -> Outcome:
        """Run a fragment to its end."""
        self._begin(fragment)
        try:
            return super().run(fragment, limits)
        finally:
            self._read_settings = self._read_settings or fragment._headrace.config is not None
            self._last, self._last_outcome = None, fragment._headrace.outcome

    def run_async(self, fragment: Fragment, limits: RunOptions) -> Future[Outcome]:
        """Run a fragment on its own thread."""
        self._begin(fragment)
        # Read when it is asked for: a callback of the future could come later than the program's end.
        self._last = fragment
        return super().run_async(fragment, limits)

    def _begin(self, fragment: Fragment) -> None:
        self._read_settings = self.read_settings
        self.began += 1
        if self._instead is not None:
            Fragment._headrace.runner = self._runner  # what this runs is not the program's
            try:
                self._instead(fragment)
            finally:
                Fragment._headrace.runner = self


_HEADRACE = Path(__file__).parents[1]


def status_of(options: argparse.Namespace, work: Callable[[argparse.Namespace], int]) -> int:
    """Return the exit status of what a command does with a program; print what that raises."""
    prefix = f"headrace {options.command}"
    try:
        return work(options)
    except ProgramError as error:
        print(f"{prefix}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{prefix}: interrupted", file=sys.stderr)
        return 130
    except Failed:
        raise
    except SystemExit as exit_:
        if exit_.code is None or isinstance(exit_.code, int):
            return exit_.code or 0
        print(exit_.code, file=sys.stderr)
        return 1
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads_stdout():
            raise  # the reader, such as `head`, has seen enough
        if options.debug:
            traceback.print_exception(error.with_traceback(without_our_frames(error.__traceback__)))
        else:
            print(f"{prefix}: {describe(error)}", file=sys.stderr)
            print(f"({prefix} --debug ... shows the traceback)", file=sys.stderr)
        return 1


def _nobody_reads_stdout() -> bool:
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no stdout, or none with a file
        return False


def describe(error: BaseException) -> str:
    """Return a line with the type and text of an error, the operator that raised it, and the program's line."""
    first, *more = message_of(error).splitlines() or [""]
    what = type(error).__name__ + (f": {first}" if first else "") + (" ..." if more else "")
    notes = [note.splitlines()[0] for note in notes_of(error) if note]
    return "; ".join(filter(None, [what, *notes, place_of(error)]))


def place_of(error: BaseException) -> str:
    """Return ``file:line`` of the innermost frame that belongs to the program, or ""."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_short(error.filename)}:{error.lineno}"
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_of_the_program(frame.f_code.co_filename)
    ]
    return f"{_short(frames[-1][0])}:{frames[-1][1]}" if frames else ""


def without_our_frames(tb: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the command that started the program."""
    here, first = str(Path(__file__).parent), tb
    while tb is not None and (tb.tb_frame.f_code.co_filename.startswith((here, "<frozen "))):
        tb = tb.tb_next
    return tb or first


def _is_of_the_program(file: str) -> bool:
    """Return whether a file belongs neither to headrace, nor to Python, nor to an installed library."""
    if file.startswith("<"):
        return False
    path = Path(file).absolute()
    if path.is_relative_to(_HEADRACE):
        return False
    return not any(path.is_relative_to(folder) for folder in _library_folders())


def _library_folders() -> set[str]:
    paths = sysconfig.get_paths()
    return {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths}


def _short(file: str) -> str:
    """Return a path relative to the current folder, if it is inside it."""
    path = Path(file)
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return file
