"""Programs give on a simulated device what they give with NumPy; `tests/gpu/real/test_arrays.py` has CuPy."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.sim import arrays as xp
from tests.gpu.array_programs import PROGRAMS, STRANGERS, compare, inputs_of


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_it_gives_with_numpy(machine: sim.Machine, name: str) -> None:
    inputs = inputs_of(64)
    stream = sim.Device(0).create_stream()
    with gpu.use_stream(stream):
        found = PROGRAMS[name](xp, *map(xp.asarray, inputs))
        assert not stream.record().is_done, "nothing in it waits"
        np.testing.assert_allclose(found.get(), PROGRAMS[name](np, *inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("error::headrace.gpu.sim.UnorderedAccessWarning")
@pytest.mark.parametrize("name", STRANGERS)
def test_a_program_that_was_written_for_numpy_and_cupy_runs(machine: sim.Machine, name: str) -> None:
    with gpu.use_stream(sim.Device(0).create_stream()):
        compare(STRANGERS[name], xp)


EXPRESSIONS = """
m.arange(9).reshape(3, 3)[m.asarray(1)]; m.arange(9).reshape(3, 3)[m.asarray([[0, 1], [1, 2], [2, 0]])];
m.arange(9).reshape(3, 3)[m.asarray([2, 0, 1]), 1:]; m.arange(27).reshape(3, 3, 3)[:, m.asarray([[0, 1, 2]])];
m.searchsorted(m.arange(5), 3); m.searchsorted(m.arange(5), m.asarray([2.5,1]), side="right");
m.maximum(m.arange(5)-2, 0); m.sum([1,2,3]); m.dot([1,2],[3,4]); m.linspace(0,1); m.logspace(0,2,5);
m.arange(0,1,0.1); m.zeros((2,3)).shape; m.zeros_like(m.ones((2,2)), dtype=m.int8); m.full((2,),3.5);
m.ones(3)[None,:].shape; m.arange(10)[::-2]; m.where(m.arange(5)>2, 1, 0); m.where(m.arange(5)>2)[0];
m.any(m.arange(3)>1); m.cumsum(m.arange(5)); m.arange(6).reshape(2,3).sum(axis=(0,1));
m.sort(m.asarray([3,1,2])); m.argsort(-m.asarray([3,1,2])); m.flip(m.arange(4));
m.outer(m.arange(3), m.arange(2)); m.kron(m.eye(2), m.ones((2,2))); m.tile(m.arange(3), 2);
m.repeat(m.arange(3), 2); m.concatenate([m.arange(3), m.arange(2)]); m.hstack((m.arange(3), m.arange(2)));
m.column_stack((m.arange(3), m.arange(3))); m.array_split(m.arange(7), 3)[1]; m.expand_dims(m.arange(3), 1);
m.squeeze(m.ones((1,3,1))); m.rot90(m.arange(4).reshape(2,2)); m.trace(m.eye(3));
m.linalg.inv(m.asarray([[2.,0],[0,4]])); m.linalg.norm(m.arange(5.0));
m.linalg.eigh(m.asarray([[2.,0],[0,4]]))[0]; m.linalg.svd(m.asarray([[2.,0],[0,4]]))[1];
m.fft.fft2(m.eye(4)).real; m.fft.fftshift(m.arange(5)); m.convolve(m.arange(5.0), m.ones(3), "same");
m.gradient(m.arange(5.0)**2); m.percentile(m.arange(11.0), [25,50]); m.quantile(m.arange(11.0), 0.3);
m.histogram(m.arange(10.0), bins=5, range=(0,10))[0]; m.bincount(m.asarray([1,1,2]));
m.bincount(m.asarray([1,1,2]), weights=m.ones(3));
m.unique(m.asarray([3,1,3])); m.meshgrid(m.arange(3), m.arange(2))[0]; m.nanmean(m.asarray([1,m.nan,3]));
m.clip(m.arange(5), 1, 3); m.arange(5).clip(1, None); m.abs(m.asarray([-1,2])); m.round(m.asarray([1.234]), 1);
m.exp(m.zeros(2)); m.power(m.arange(4), 2); m.arange(4)**2; 2**m.arange(4); m.sqrt(m.arange(4));
m.log1p(m.arange(4)); m.floor(m.asarray([1.5])); m.isnan(m.asarray([m.nan]));
m.logical_and(m.asarray([True]), False); m.all(m.isclose(m.ones(3), 1)); m.array_equal(m.ones(3), m.ones(3));
m.diff(m.asarray([1,4,9])); m.diff(m.arange(9).reshape(3,3), axis=0);
m.pad(m.ones((2,2)), ((1,0),(0,1)), constant_values=7); m.take(m.arange(5), [0,2]); m.arange(5)[[0,2]];
m.arange(9).reshape(3,3)[m.asarray([0,1]), :]; m.arange(9).reshape(3,3)[..., 0];
m.arange(9).reshape(3,3)[1, [0,2]]; m.arange(9).reshape(3,3)[m.ix_([0,1],[0,2])]; m.vander(m.arange(3),3);
m.tri(3); m.diag(m.arange(3)); m.diag(m.eye(3)); m.triu(m.ones((3,3)));
m.einsum("ij->ji", m.arange(4).reshape(2,2)); m.tensordot(m.eye(2), m.eye(2), axes=1);
m.inner(m.arange(3), m.arange(3)); m.matmul(m.eye(2), m.ones(2)); m.corrcoef(m.asarray([[1.,2,3],[3,2,1]]));
m.cov(m.asarray([[1.,2,3],[3,2,1]])); m.interp(m.asarray([0.5]), m.arange(3.0), m.arange(3.0)*2);
m.polyval(m.asarray([1.,2]), m.arange(3.0)); m.digitize(m.asarray([0.5,1.5]), m.arange(3.0));
m.roll(m.arange(5), 2); m.swapaxes(m.ones((2,3)), 0, 1).shape; m.moveaxis(m.ones((2,3,4)), 0, -1).shape;
m.stack([m.arange(3)]*2, axis=1); m.vstack([m.arange(3)]*2); m.broadcast_to(m.arange(3), (2,3));
m.atleast_2d(m.arange(3)); m.count_nonzero(m.arange(3)); m.nonzero(m.arange(3))[0]; m.argwhere(m.arange(3));
m.flatnonzero(m.arange(3)); m.isin(m.arange(4), [1,2]); m.median(m.arange(5));
m.average(m.arange(4.0), weights=m.arange(4.0)); m.prod(m.arange(1,5)); m.bitwise_and(m.arange(4), 1);
m.left_shift(m.arange(3), 1); m.hypot(3.0*m.ones(1), 4.0); m.degrees(m.asarray([m.pi]));
m.deg2rad(m.asarray([180.0])); m.sinc(m.zeros(2)); m.angle(m.asarray([1j])); m.conj(m.asarray([1j]));
m.asarray([1+2j]).real; m.asarray([1+2j]).imag; m.cross(m.asarray([1,0,0]), m.asarray([0,1,0]));
m.ones(3) == 1; (m.ones(3) == m.ones(3)).all(); m.ones((2,3)).T.shape; m.ones((2,3)).flatten().shape;
m.ones(3).astype(int); m.ones(3).astype(bool); m.zeros(3, float); m.array([[1,2],[3,4]], dtype=float);
m.ones(3) @ m.ones(3); -m.arange(3); ~m.asarray([True]); m.arange(5) % 2; abs(m.asarray([-3]));
m.nan_to_num(m.asarray([m.nan])); m.cumprod(m.arange(1,4)); m.trapezoid(m.arange(4.0));
m.select([m.arange(3)>1],[m.arange(3)],7); m.ascontiguousarray(m.eye(2).T);
m.lexsort((m.arange(3), m.arange(3))); m.ravel(m.eye(2)); m.identity(2); m.copy(m.ones(2));
m.tril_indices(3)[0]; m.unravel_index(5,(2,3))[0]; m.floor_divide(m.arange(4), 2);
m.true_divide(m.arange(4), 2); m.float64(2)*m.ones(2); m.ones(2)*m.asarray(2.0); m.max(m.ones((2,2)), 1);
m.ones((2,2)).max(1); m.ones((2,2)).sum(1, keepdims=True); m.std(m.arange(4.0), axis=0, ddof=1);
m.equal(m.arange(3), 1); m.arange(m.asarray(3)); m.arange(0.5, 5, m.asarray(2)); m.arange(m.asarray([3]).max());
m.full((2, 2), m.nan, dtype=m.int32); m.full(2, 2.5, dtype=m.int8)
"""


@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_people_write_means_what_it_means_in_numpy(machine: sim.Machine) -> None:
    for written in EXPRESSIONS.replace("\n", " ").split(";"):
        code = compile(written.strip(), written, "eval")
        compare(lambda m, code=code: eval(code, {"m": m}), xp)  # type: ignore[misc]
    assert f"{xp.arange(4.0)[2]:.1f}" == "2.0"


def test_a_copy_by_pickle_and_deepcopy_is_an_array_with_the_same_values(machine: sim.Machine) -> None:
    array = xp.reshape(xp.arange(6), (2, 3))[:, ::2]
    for copied in (pickle.loads(pickle.dumps(array)), copy.deepcopy({"it": array})["it"]):
        assert type(copied) is xp.ndarray
        assert copied.get().tolist() == [[0, 2], [3, 5]]
        copied[0, 0] = 9
    assert array[0, 0].get() == 0
