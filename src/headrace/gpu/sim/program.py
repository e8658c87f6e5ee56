"""Programs of a simulated device: CUDA source whose kernels have models."""

from __future__ import annotations

from typing import Any

from headrace.gpu.kernels import find_declared
from headrace.gpu.sim.errors import CUDAError
from headrace.gpu.sim.kernel import Kernel, model_of
from headrace.gpu.sim.options import options_of

# The fields of cuda.core's ProgramOptions.
_PROGRAM_OPTIONS = """
name arch relocatable_device_code extensible_whole_program debug lineinfo device_code_optimize
ptxas_options max_register_count ftz prec_sqrt prec_div fma use_fast_math extra_device_vectorization
link_time_optimization gen_opt_lto define_macro undefine_macro include_path use_bundled_headers
pre_include no_source_include std builtin_move_forward builtin_initializer_list disable_warnings restrict
device_as_default_execution_space device_int128 optimization_info no_display_error_number diag_error
diag_suppress diag_warn brief_diagnostics time split_compile fdevice_syntax_only minimal no_cache
fdevice_time_trace device_float128 frandom_seed ofast_compile pch create_pch use_pch pch_dir pch_verbose
pch_messages instantiate_templates_in_pch extra_sources use_libdevice numba_debug
""".split()  # noqa: SIM905 - 55 lines with a name each would not be clearer


class ProgramOptions:
    """Compiler options. A simulated device has no compiler, so it stores them without using them."""

    def __init__(self, **options: Any) -> None:
        for name in options:
            if name not in _PROGRAM_OPTIONS:
                raise TypeError(f"ProgramOptions has no option {name!r}")
        self.__dict__.update(dict.fromkeys(_PROGRAM_OPTIONS), **options)


class Program:
    """CUDA source whose kernels were declared with models (:class:`headrace.gpu.kernel`)."""

    def __init__(
        self, code: str, code_type: str, options: ProgramOptions | dict[str, Any] | None = None
    ) -> None:
        if code_type not in ("c++", "ptx", "nvvm"):
            raise ValueError(f"code_type must be 'c++', 'ptx' or 'nvvm', got {code_type!r}")
        options_of(ProgramOptions, options, "Program")
        self._code = code

    def compile(
        self,
        target_type: str,
        name_expressions: tuple[str, ...] | list[str] = (),
        logs: Any = None,
        *,
        cache: Any = None,
    ) -> ObjectCode:
        """Return the object code, which provides the kernels.

        Nothing is compiled, so nothing is written to ``logs`` and nothing is stored in ``cache``.
        """
        if cache is not None and name_expressions:
            raise ValueError(
                "compile takes no name_expressions with a cache, which does not store their names"
            )
        if target_type not in ("cubin", "ptx", "ltoir"):
            raise ValueError(f"target_type must be 'cubin', 'ptx' or 'ltoir', got {target_type!r}")
        return ObjectCode._from_source(self._code)


class ObjectCode:
    """A compiled program, whose kernels are their models."""

    _code: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("ObjectCode objects cannot be created directly; use Program.compile")

    @classmethod
    def _from_source(cls, code: str) -> ObjectCode:
        self = cls.__new__(cls)
        self._code = code
        return self

    def get_kernel(self, name: str) -> Kernel[...]:
        """Return the model that was declared for a kernel of this source."""
        kernel = find_declared(self._code, name)
        if kernel is None:
            raise CUDAError(
                f"CUDA_ERROR_NOT_FOUND: no model of kernel {name!r} was declared for this source; "
                "a simulated device needs one: headrace.gpu.kernel(name, source=..., seconds=...)"
            )
        return model_of(kernel)
