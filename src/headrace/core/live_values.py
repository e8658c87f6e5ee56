"""LiveValues and KnobValues: parameters and knobs of an operator that may be changed while it runs.

A change from any thread is checked at once, in the thread that makes it, and stored. It takes effect when the next
compute of the operator begins, on the thread that runs it: a compute sees one value from its beginning to its end.
Only the compute of an operator with live parameters is wrapped for this; the others cost nothing. Outside of a run,
a change takes effect at once.

Compose creates operators anew for each run. A change that is made outside of a run is therefore remembered under
the name of the operator, and given to the operator of that name in later runs. A change in the middle of a run is
over with the run, so that the same program does the same in its next run.

The value of a knob is that of the operator's attribute of the same name, such as a parameter. If there is none, it
is what `Operator.set_knob` set last. The run reads it (`_runtime/streams/knobs`) when a compute, or a frame of a
segment, begins. So setting a value is one assignment to a dict, which CPython makes atomic. A value that is set
outside of a run is remembered as for live parameters.

KnobType: the element type of a knob, and the bytes of its values.

A value on the host becomes bytes here, before anything touches the device: what does not fit is an error that says
why. A float loses digits in a smaller type, as everywhere, but it does not become infinite, and an integer does not
wrap around.
"""

from __future__ import annotations

import numbers
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.brief import brief
from headrace.core.errors import ParameterError, absent
from headrace.core.parameters import holder_of

if TYPE_CHECKING:
    import numpy as np

    from headrace.core.operator import Operator
    from headrace.core.parameters import Parameter, ParameterVersion


class KnobType:
    """The element type of a knob.

    Parameters
    ----------
    dtype
        A dtype of NumPy or ml_dtypes, of PyTorch, or the name of one. Anything else raises ValueError.

    Attributes
    ----------
    dtype
        NumPy's dtype.
    name, size
        Its name, and the size of a value in bytes.
    """

    __slots__ = ("_kind", "dtype", "name", "size")

    def __init__(self, dtype: Any) -> None:
        self.dtype = _numpy_dtype(dtype)
        self.name: str = self.dtype.name
        self.size: int = self.dtype.itemsize
        self._kind = self.dtype.kind
        if _is_of_ml_dtypes(self.dtype):
            self._kind = "f"
            is_known = self.name == "bfloat16" or self.name.startswith("float8")
        else:
            is_known = self.dtype.char in "?bhilqBHILQefdFD" and self.dtype.isnative
        if not is_known:
            raise ValueError(
                f"{dtype!r} is not a type of knobs: bool, integers, floats and complex numbers of 1 to 16 bytes in "
                "this machine's byte order, such as np.float32"
            )

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes; raise ValueError, which says why, if the type cannot hold it."""
        number = check_number(value)
        if self._kind != "c" and not isinstance(number, numbers.Real):
            raise ValueError(
                f"{brief(number)} is complex, and {self.name} is not; use complex64 or complex128"
            )
        return self._integer(number) if self._kind in "biu" else self._float(number)

    def _integer(self, value: Any) -> bytes:
        if not isinstance(value, numbers.Integral) and not float(value).is_integer():
            raise ValueError(f"{brief(value)} is not an integer, and {self.name} holds no other numbers")
        if self._kind == "b" and value not in (0, 1):
            raise ValueError(f"{brief(value)} is neither True nor False")
        try:
            return int(value).to_bytes(self.size, sys.byteorder, signed=self._kind == "i")
        except OverflowError:
            raise ValueError(f"{brief(value)} does not fit into {self.name}: {self._range()}") from None

    def _float(self, value: Any) -> bytes:
        import numpy as np

        try:
            number = complex(value) if self._kind == "c" else float(value)
        except OverflowError:
            raise ValueError(f"{value!r:.80} is too large for any float") from None
        if self.dtype.char in "efd":  # a tenth of NumPy's time, which a knob takes for every frame
            try:
                return struct.pack(f"={self.dtype.char}", number)
            except OverflowError:
                raise ValueError(f"{brief(value)} does not fit into {self.name}: {self._range()}") from None
        wide = np.array(number)
        with np.errstate(over="ignore", invalid="ignore"):
            stored = wide.astype(self.dtype)
            if np.isfinite(wide) and not np.isfinite(stored.astype(wide.dtype)):
                raise ValueError(f"{brief(value)} does not fit into {self.name}: {self._range()}")
        return stored.tobytes()

    def _range(self) -> str:
        import numpy as np

        if self._kind in "iu":
            bounds = np.iinfo(self.dtype)
            return f"it holds {bounds.min} to {bounds.max}"
        if _is_of_ml_dtypes(self.dtype):
            return "its largest number is smaller"
        return f"its largest number is {float(np.finfo(self.dtype).max)!r}"


def _is_of_ml_dtypes(dtype: np.dtype[Any]) -> bool:
    return dtype.type.__module__.partition(".")[0] == "ml_dtypes"


def check_number(value: Any) -> Any:
    """Return a number, as Python's where NumPy has one of its own; raise ValueError for anything else."""
    if isinstance(value, (int, float)):
        return value
    found = value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        if _is_of_ml_dtypes(value.dtype):
            found = float(value)
        elif value.dtype.kind in "biufc":
            found = value.item()
    if not isinstance(found, numbers.Complex):
        raise ValueError(
            f"a knob is a number, not an object of type {type(value).__name__!r} ({value!r:.80})"
        )
    return found


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    import numpy as np

    name = str(dtype).rpartition(".")[2]  # PyTorch's names begin with that of its module
    found: np.dtype[Any]
    for known in (dtype, name) if dtype is not None else ():  # NumPy takes None as float64
        with suppress(TypeError):
            found = np.dtype(known)
            return found
    with suppress(ImportError, AttributeError, TypeError):
        import ml_dtypes

        found = np.dtype(getattr(ml_dtypes, name))
        return found
    raise ValueError(f"{dtype!r} is not a dtype; use one such as np.float32")


class LiveValues:
    """The live parameters of one operator, and the changes that wait for its next compute.

    Attributes
    ----------
    parameters
        The live parameters, by name.
    begin
        Called when a compute begins, after the changes; None if there is nothing to do.
    """

    __slots__ = ("_is_in_run", "_lock", "_operator", "_waiting", "begin", "parameters")

    def __init__(self, operator: Operator, parameters: dict[str, Parameter]) -> None:
        self.parameters = parameters
        self._operator = operator
        # Held while a value is set outside of a run, so that no run begins in the middle of that. A setter of the
        # program may set further values meanwhile, so the thread that holds it may take it again.
        self._lock = threading.RLock()
        # Changed under the lock; the operator's compute looks at it without.
        self._waiting: dict[str, Any] = {}
        self._is_in_run = False
        self.begin: Callable[[], None] | None = None

    # From any thread.

    def check(self, name: str, value: Any) -> Any:
        """Return a value, converted if necessary; raise ParameterError if the parameter cannot have it."""
        operator = self._operator
        owner = f"operator {operator.name!r}"
        parameter = self.parameters.get(name)
        if parameter is None:
            if name in operator.spec.params:
                remedy = f"setup declares that by spec.param({name!r}, ..., live=True)"
                if operator.is_function:
                    remedy = f"declare that by @op(live={name!r})"
                raise ParameterError(f"parameter {name!r} of {owner} is not live: {remedy}")
            raise ParameterError(absent(owner, "live parameter", name, self.parameters))
        checked = parameter.checked(value, owner)
        if name in operator._headrace.knobs.types:
            operator._headrace.knobs.check(name, checked)
        return checked

    def set(self, name: str, value: Any, is_remembered: bool = True) -> None:
        """Change a parameter; raise ParameterError, and change nothing, if the value is wrong.

        Outside of a run, it is remembered for later runs, unless these get it from elsewhere.
        """
        checked, operator = self.check(name, value), self._operator
        fragment = operator.fragment
        set_elsewhere = fragment._headrace.run_control.set_elsewhere
        if set_elsewhere is not None:
            set_elsewhere(operator, "set_live", name, checked)
            self.show(name, checked)
            return
        with self._lock:
            if self._is_in_run:
                self._waiting[name] = checked
                return
            if (
                is_remembered and not fragment._headrace.is_composing_here
            ):  # else compose makes the change again
                fragment._headrace.live_values[operator.name, name] = checked
            setattr(holder_of(operator), name, checked)

    def get(self, name: str) -> Any:
        """Return the value that the next compute will see."""
        waiting = self._waiting.get(name, _NOTHING)
        return getattr(holder_of(self._operator), name, None) if waiting is _NOTHING else waiting

    def show(self, name: str, value: Any) -> None:
        """Let `get` return a value that an operator in another process has."""
        with self._lock:
            self._waiting[name] = value

    # By a run.

    def recall(self) -> None:
        """Take on the values that were set before the run."""
        remembered = self._operator.fragment._headrace.live_values
        for name, parameter in self.parameters.items():
            if (self._operator.name, name) in remembered:
                value = remembered[self._operator.name, name]
                # Checked again: compose may have created another kind of operator under this name.
                checked = parameter.checked(value, f"operator {self._operator.name!r}")
                setattr(holder_of(self._operator), name, checked)

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute that begins with the changes made since the last one; changes now wait for it."""
        waiting, apply = self._waiting, self.apply
        self.begin = None
        with self._lock:
            self._is_in_run = True

        def compute_with_changes(op_input: Any, op_output: Any, context: Any) -> None:
            if waiting:
                apply()
            if self.begin is not None:
                self.begin()
            compute(op_input, op_output, context)

        return compute_with_changes

    def end_run(self) -> None:
        """Apply the changes that are left: there will be no more computes."""
        try:
            self.apply()
        finally:
            with self._lock:
                self._is_in_run = False
                self._waiting.clear()

    def apply(self) -> None:
        """Apply the changes that wait."""
        # A setter of the program may set further values, which take effect in the next round: setters that set each
        # other's values in turn are done after as many rounds as there are parameters. Those that do so in a circle
        # go on with the next compute.
        for _ in range(len(self.parameters) + 1):
            if not self._waiting:
                return
            with self._lock:
                changes = list(self._waiting.items())
            for name, value in changes:
                # Not under the lock: a setter may wait for a thread that sets a value itself.
                try:
                    setattr(holder_of(self._operator), name, value)
                finally:
                    with self._lock:
                        if self._waiting.get(name, _NOTHING) is value:
                            del self._waiting[name]


_NOTHING = object()


class KnobValues:
    """What the knobs of one operator were set to.

    Attributes
    ----------
    given
        The values that were set, by name. Any thread adds to it.
    types
        The types of the knobs that the run has, by name. The operator's computes add to it.
    are_known
        Whether a compute has asked for knobs and is over, so that other names are mistakes.
    is_announced
        Whether its segment knows that it has to look at the values. The segment clears it before it looks.
    is_in_run
        Whether computes may be in progress, so that values are those of this run alone.
    version
        Counts the changes of parameters and knobs for the segment that captured the operator, if one did.
    """

    __slots__ = ("_operator", "are_known", "given", "is_announced", "is_in_run", "types", "version")

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.given: dict[str, Any] = {}
        self.types: dict[str, KnobType] = {}
        self.are_known = False
        self.is_in_run = False
        self.is_announced = False
        self.version: ParameterVersion | None = None

    # From any thread.

    def set(self, name: str, value: Any) -> None:
        """Set a knob; raise ParameterError, and change nothing, if the name or the value is wrong."""
        operator = self._operator
        if not isinstance(name, str) or not name:
            raise self._error(f"the name of a knob must be a non-empty str, not {name!r}")
        if name in operator._headrace.live_parameters:
            operator.set_live(name, value)
            return
        if getattr(holder_of(operator), name, None) is not None:
            what, remedy = "attribute", f"assign the attribute, or give the knob another name than {name!r}"
            if name in operator.spec.params:
                what, remedy = "parameter", f"declare it as live: spec.param({name!r}, ..., live=True)"
            raise self._error(
                f"knob {name!r} follows the {what} of that name, and set_knob does not change it; {remedy}"
            )
        if self.are_known and name not in self.types:
            raise ParameterError(absent(f"operator {operator.name!r}", "knob", name, self.types))
        self.check(name, value)
        set_elsewhere = operator.fragment._headrace.run_control.set_elsewhere
        if set_elsewhere is not None:
            set_elsewhere(operator, "set_knob", name, value)
            return
        self.given[name] = value
        self.announce()
        if self.is_in_run:
            return
        fragment = operator.fragment
        if not fragment._headrace.is_composing_here:  # otherwise compose will set it again
            fragment._headrace.knob_values[operator.name, name] = value

    def announce(self) -> None:
        """Announce to the segment of the operator, if there is one, that a knob was set; from any thread."""
        version = self.version
        if version is not None and not self.is_announced:
            self.is_announced = True
            version.knobs.append(self)

    def _error(self, why: str) -> ParameterError:
        return ParameterError(f"operator {self._operator.name!r}: {why}")

    def check(self, name: str, value: Any) -> None:
        """Raise ParameterError if a knob cannot have a value; if there is no such knob yet, if none could."""
        known = self.types.get(name)
        try:
            if known is None:
                check_number(value)
            else:
                known.encode(value)
        except ValueError as error:
            raise ParameterError(f"knob {name!r} of operator {self._operator.name!r}: {error}") from None

    # By a run.

    def recall(self) -> None:
        """Take on the values that were set before the run."""
        for (operator, name), value in list(self._operator.fragment._headrace.knob_values.items()):
            if operator == self._operator.name:
                self.given[name] = value

    def know_names(self) -> None:
        """Take other names for mistakes from now on; raise ParameterError if one was set already."""
        self.are_known = True
        for name in list(self.given):
            if name not in self.types:
                where = f"set_knob({name!r}, ...): operator {self._operator.name!r}"
                raise ParameterError(absent(where, "knob", name, self.types))

    def end_run(self, computes: int) -> None:
        """Forget the knobs of a run, which go with it; warn of values that none of its computes asked for."""
        has_none = not self.types
        self.is_in_run = self.are_known = self.is_announced = False
        self.types.clear()
        if has_none and self.given and computes:
            warnings.warn(
                f"set_knob({next(iter(self.given))!r}, ...) of operator {self._operator.name!r} changed nothing: "
                "its compute asks for no knob (context.knob)",
                stacklevel=2,
            )
