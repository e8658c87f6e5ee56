"""Arrays of a simulated device give what `array-api-strict` gives, for random calls of every function."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.array_api import make_strategies_namespace

strict = pytest.importorskip("array_api_strict")

from headrace.gpu import sim  # noqa: E402
from headrace.gpu.sim import arrays as xp  # noqa: E402
from tests.gpu.sim.arrays.calls import (  # noqa: E402
    CALLS,
    DTYPES,
    FLOATS,
    INTEGERS,
    REAL_FLOATS,
    SHAPES,
    Operand,
    accepted,
    find,
    index,
    like,
    operand,
)
from tests.limits import THOROUGH  # noqa: E402

strict.set_array_api_strict_flags(api_version="2024.12")

EXAMPLES = 200 if THOROUGH else 8  # of each of 160 functions: an example takes 10 ms to make


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[sim.Machine]:
    """One machine for all examples."""
    with sim.Machine("h200") as machine:
        yield machine


def values(result: Any) -> np.ndarray[Any, Any]:
    return result.get() if isinstance(result, xp.ndarray) else np.asarray(result._array)


def same(ours: Any, theirs: Any) -> None:
    """Compare two results."""
    if isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs)
        assert getattr(ours, "_fields", None) == getattr(theirs, "_fields", None)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
        return
    got, expected = values(ours), values(theirs)
    assert got.dtype == expected.dtype == np.dtype(ours.dtype)
    assert got.shape == expected.shape == ours.shape
    if expected.dtype.kind in "fc":
        single = expected.dtype in (np.float32, np.complex64)
        tolerance = 2e-4 if single else 1e-9
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, expected)


def call(module: Any, name: str, args: Any, options: Any) -> Any:
    given = [like(one, module) for one in args]
    named = {key: like(one, module) for key, one in options.items()}
    with np.errstate(all="ignore"):
        return find(module, name)(*given, **named)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_function_gives_what_the_standard_says(name: str) -> None:
    checked = 0

    @settings(max_examples=EXAMPLES)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        nonlocal checked
        args, options = CALLS[name](data.draw)
        try:
            expected = call(strict, name, args, options)
        except (TypeError, ValueError, OverflowError, IndexError):
            return  # not what the standard defines
        checked += 1
        same(call(xp, name, args, options), expected)

    compare()
    assert checked >= EXAMPLES // 4


NO_ARRAYS = {"can_cast", "finfo", "iinfo", "isdtype", "result_type"}
UNLIKE = {
    "empty": "its elements are whatever is in memory",
    "empty_like": "its elements are whatever is in memory",
    "from_dlpack": "see test_exchange",
    "linalg.eigh": "vectors have either sign: see below",
    "linalg.qr": "vectors have either sign: see below",
    "linalg.svd": "vectors have either sign: see below",
}


def functions(module: Any) -> dict[str, Any]:
    """Return the functions of the standard, of version 2024.12."""
    later = {"isin", "broadcast_shapes", "eig", "eigvals"}
    found = {
        name: getattr(module, name) for name in strict.__all__ if "flags" not in name and name not in later
    }
    for extension in ("linalg", "fft"):
        names = getattr(strict, extension).__all__
        found |= {
            f"{extension}.{name}": find(module, f"{extension}.{name}") for name in names if name not in later
        }
    return {name: one for name, one in found.items() if inspect.isfunction(getattr(one, "__wrapped__", one))}


def test_no_function_of_the_standard_is_missing() -> None:
    assert set(functions(strict)) == set(CALLS) | NO_ARRAYS | set(UNLIKE)
    assert {name.partition(".")[0] for name in functions(strict)} <= set(dir(xp))


def test_functions_can_be_called_as_the_standard_says() -> None:
    """What the standard has by keyword only may be given by position too, as NumPy and CuPy take it."""
    unlike = {("from_dlpack", "device"), ("from_dlpack", "copy"), ("astype", "device")}
    left_out = (np._NoValue, None)  # of NumPy's functions, for what the standard has as a value
    for name in functions(strict):
        ours, known = list(inspect.signature(find(xp, name)).parameters.values()), []
        for place, theirs in enumerate(inspect.signature(find(strict, name)).parameters.values()):
            if theirs.kind in (theirs.POSITIONAL_ONLY, theirs.VAR_POSITIONAL):
                mine = ours[place]  # by whatever name
                assert mine.kind in (theirs.kind, mine.POSITIONAL_OR_KEYWORD), (name, theirs)
            else:
                (mine,) = [one for one in ours if one.name == theirs.name]
                assert mine.kind in (theirs.KEYWORD_ONLY, mine.POSITIONAL_OR_KEYWORD), (name, theirs)
                if theirs.kind is theirs.POSITIONAL_OR_KEYWORD:
                    assert mine is ours[place], (name, theirs)
            if theirs.default is not theirs.empty and (name, theirs.name) not in unlike:
                assert mine.default in (theirs.default, *left_out), (name, theirs)
            known.append(mine)
        assert all(one.default is not one.empty for one in ours if one not in known), name


@given(st.data())
def test_an_index_gives_what_the_standard_says(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    x = operand(data.draw, data.draw(st.sampled_from(DTYPES)), shape)
    key = index(data.draw, shape)
    try:
        expected = x.on(strict)[like(key, strict)]
    except IndexError:
        return
    same(x.on(xp)[like(key, xp)], expected)


@given(st.data())
def test_an_assignment_gives_what_the_standard_says(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    dtype = data.draw(st.sampled_from(DTYPES))
    x, key = operand(data.draw, dtype, shape), index(data.draw, shape)
    if isinstance(key, tuple) and any(one is None or isinstance(one, Operand) for one in key):
        return  # the standard has no assignment by integers or to new dimensions
    theirs, ours = x.on(strict), x.on(xp)
    try:
        wanted = theirs[like(key, strict)].shape
    except IndexError:
        return
    value: Any = operand(data.draw, dtype, data.draw(st.sampled_from([(), wanted])))
    if isinstance(key, Operand):
        value = operand(data.draw, dtype, ())
    theirs[like(key, strict)] = value.on(strict)
    ours[like(key, xp)] = value.on(xp)
    same(ours, theirs)


OPERATORS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "remainder",
    "**": "pow", "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor", "<<": "bitwise_left_shift",
    ">>": "bitwise_right_shift", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
    "==": "equal", "!=": "not_equal", "@": "matmul",
}  # fmt: skip


def fits(result: Any, x: Any) -> bool:
    return bool(result.shape == x.shape and result.dtype == x.dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("symbol", OPERATORS)
def test_an_operator_gives_what_the_standard_says(symbol: str) -> None:
    is_assigned = symbol not in ("<", "<=", ">", ">=", "==", "!=", "@")

    @settings(max_examples=EXAMPLES)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        args, _ = CALLS[OPERATORS[symbol]](data.draw)
        source = f"x {symbol} y"
        both: list[Any] = []
        for module in (strict, xp):
            x, y = (like(one, module) for one in args)
            try:
                with np.errstate(all="ignore"):
                    found = [eval(source, {"x": x, "y": y})]
                    if is_assigned and isinstance(args[0], Operand) and fits(found[0], x):
                        names = {"x": x, "y": y}
                        exec(f"x {symbol}= y", names)
                        found.append(names["x"])
            except (TypeError, ValueError, OverflowError):
                if module is strict:
                    return
                raise
            both.append(found)
        same(both[1], both[0])

    compare()


UNARY = ["abs", "negative", "sin", "floor", "square", "isfinite", "logical_not", "exp"]
BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "less", "equal", "divide", "where"]


@given(st.data())
def test_an_expression_gives_what_the_standard_says(data: st.DataObject) -> None:
    """A random program of many steps on a few arrays, each of which uses what earlier ones have made."""
    shape = data.draw(st.sampled_from([(3, 4), (4,), (2, 1, 3)]))
    start = [operand(data.draw, data.draw(st.sampled_from(REAL_FLOATS)), shape) for _ in range(2)]
    theirs, ours = [one.on(strict) for one in start], [one.on(xp) for one in start]
    for _ in range(data.draw(st.integers(3, 12))):
        name = data.draw(st.sampled_from([*UNARY, *BINARY, "sum", "assign", "view"]))
        places = [data.draw(st.integers(0, len(ours) - 1)) for _ in range(3)]

        def step(module: Any, known: list[Any], name: str = name, places: list[int] = places) -> Any:
            x, y, z = (known[place] for place in places)
            if name == "assign":
                x[...] = module.asarray(2, dtype=x.dtype)
                return x
            if name == "view":
                return x[..., ::-1]
            if name == "sum":
                return module.sum(x, axis=-1, keepdims=True)
            if name == "where":
                return module.where(module.astype(x, module.bool), y, z)
            return getattr(module, name)(*((x,) if name in UNARY else (x, y)))

        try:
            with np.errstate(all="ignore"):
                expected = step(strict, theirs)
        except (TypeError, ValueError):
            continue
        ours.append(step(xp, ours))
        theirs.append(expected)
    same(ours, theirs)


@pytest.mark.parametrize("name", ["eigh", "qr", "svd"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_factors_give_the_matrix_again(name: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    matrix = rng.random((2, 4, 4)).astype(dtype)
    matrix = matrix + np.conj(np.swapaxes(matrix, -1, -2))
    found = find(xp.linalg, name)(xp.asarray(matrix))
    parts = [one.get() for one in found]
    if name == "eigh":
        again = parts[1] @ (parts[0][..., None] * np.conj(np.swapaxes(parts[1], -1, -2)))
    else:
        again = parts[0] @ parts[1] if name == "qr" else parts[0] @ (parts[1][..., None] * parts[2])
    np.testing.assert_allclose(again, matrix, rtol=1e-4, atol=1e-4)
    assert found._fields == find(strict.linalg, name)(strict.asarray(matrix))._fields


def test_types_are_promoted_as_the_standard_says() -> None:
    for one, two in product(DTYPES, DTYPES):
        ours, theirs = ([getattr(module, name) for name in (one, two)] for module in (xp, strict))
        try:
            expected = strict.result_type(*theirs)
        except TypeError:
            continue  # of two kinds: the standard leaves that open, and NumPy's answer is given
        kinds = [np.dtype(name).kind.replace("u", "i") for name in (one, two)]
        if kinds[0] == kinds[1]:
            assert xp.can_cast(*ours) == strict.can_cast(*theirs), (one, two)
        assert xp.result_type(*ours) == np.dtype(str(expected).rpartition(".")[2]), (one, two)
        assert (one, two) in accepted("equal", 2), (one, two)


def test_types_say_what_they_are() -> None:
    kinds = [
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
    ]
    for name in DTYPES:
        for kind in kinds:
            expected = strict.isdtype(getattr(strict, name), kind)
            assert xp.isdtype(getattr(xp, name), kind) == expected
    for name in INTEGERS:
        ours, theirs = xp.iinfo(getattr(xp, name)), strict.iinfo(getattr(strict, name))
        assert (ours.bits, ours.max, ours.min) == (theirs.bits, theirs.max, theirs.min)
    for name in FLOATS:
        ours, theirs = xp.finfo(getattr(xp, name)), strict.finfo(getattr(strict, name))
        for field in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(ours, field) == getattr(theirs, field)
            assert type(getattr(ours, field)) in (int, float)


def test_a_type_is_named_as_for_dtype_and_several_arrays_are_a_list() -> None:
    assert xp.isdtype("float32", "real floating")
    assert xp.isdtype(xp.int8, ("bool", xp.int8))
    assert not xp.isdtype(bool, ("real floating", "integral"))
    x = xp.arange(3)
    assert [type(xp.meshgrid(x, x)), type(xp.broadcast_arrays(x, x))] == [list, list]
    assert type(xp.unstack(x)) is tuple


def test_the_module_says_what_it_can_do() -> None:
    ours, theirs = xp.__array_namespace_info__(), strict.__array_namespace_info__()
    assert set(ours.dtypes()) == set(theirs.dtypes()) == set(DTYPES)
    assert set(ours.dtypes(kind="integral")) == set(INTEGERS)
    assert set(ours.dtypes(kind=("bool", "real floating"))) == {"bool", *REAL_FLOATS}
    assert set(ours.default_dtypes()) == set(theirs.default_dtypes())
    assert ours.capabilities()["data-dependent shapes"] is True
    assert ours.default_device() == ours.devices()[0] == xp.ones(1).device
    assert xp.ones(1).__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match=r"2024\.12"):
        xp.ones(1).__array_namespace__(api_version="1999.12")


def test_hypothesis_draws_arrays_of_the_module() -> None:
    """Its strategies for modules of the standard, which the standard's own tests are built on, work with ours."""
    strategies = make_strategies_namespace(xp, api_version="2024.12")

    @given(
        strategies.arrays(strategies.scalar_dtypes(), strategies.array_shapes(max_dims=3, max_side=3)),
        st.data(),
    )
    def check(x: Any, data: st.DataObject) -> None:
        key = data.draw(strategies.indices(x.shape))
        np.testing.assert_array_equal(x[key].get(), x.get()[key])

    check()


INF = float("inf")


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (INF, 2, INF), (INF, -2, -INF), (-INF, 2, -INF), (-INF, -2, INF),
        (3, -INF, -0.0), (-3, INF, -0.0), (3, INF, 0.0), (7, 2, 3), (1, 0.1, 9), (INF, INF, np.nan),
    ],
)  # fmt: skip
def test_a_division_that_rounds_down_has_the_standards_special_cases(
    x: float, y: float, expected: float
) -> None:
    one, other = xp.asarray([x], dtype=xp.float64), xp.asarray([y], dtype=xp.float64)
    for found in (xp.floor_divide(one, other), one // other, one.__ifloordiv__(other)):
        np.testing.assert_array_equal(found.get(), [expected])
        assert np.signbit(found.get()[0]) == np.signbit(expected) or np.isnan(expected)


NAN = float("nan")


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("sign", complex(NAN, INF), complex(NAN, NAN)),
        ("sign", complex(-INF, NAN), complex(NAN, NAN)),
        ("sign", complex(3, 4), complex(0.6, 0.8)),
        ("expm1", complex(INF, 0), complex(INF, 0)),
        ("expm1", complex(INF, INF), complex(INF, NAN)),
        ("expm1", complex(INF, NAN), complex(INF, NAN)),
        ("expm1", complex(-INF, NAN), complex(-1, 0)),
        ("expm1", complex(NAN, 0), complex(NAN, 0)),
        ("expm1", complex(1e-20, 0), complex(1e-20, 0)),
    ],
)
def test_a_complex_number_that_is_not_finite_gives_what_the_standard_says(
    name: str, x: complex, expected: complex, dtype: str
) -> None:
    found = getattr(xp, name)(xp.asarray([x], dtype=getattr(xp, dtype)))
    assert found.dtype == np.dtype(dtype)
    for part in (np.real, np.imag):
        np.testing.assert_allclose(part(found.get()), [part(expected)], rtol=1e-6)
