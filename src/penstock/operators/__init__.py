"""The catalogue of operators: sources, image processing, tests of pipelines.

Each is imported when it is first used, so that importing this package imports no library of theirs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.operators.bayer_demosaic import BayerDemosaicOp
    from penstock.operators.format_converter import FormatConverterOp
    from penstock.operators.inference_processor import InferenceProcessorOp
    from penstock.operators.ping_rx import PingRxOp
    from penstock.operators.ping_tensor_rx import PingTensorRxOp
    from penstock.operators.ping_tensor_tx import PingTensorTxOp
    from penstock.operators.ping_tx import PingTxOp
    from penstock.operators.probe import ProbeOp
    from penstock.operators.segmentation_postprocessor import SegmentationPostprocessorOp

__all__ = [
    "BayerDemosaicOp",
    "FormatConverterOp",
    "InferenceProcessorOp",
    "PingRxOp",
    "PingTensorRxOp",
    "PingTensorTxOp",
    "PingTxOp",
    "ProbeOp",
    "SegmentationPostprocessorOp",
]

_MODULES = {
    "BayerDemosaicOp": "penstock.operators.bayer_demosaic",
    "FormatConverterOp": "penstock.operators.format_converter",
    "InferenceProcessorOp": "penstock.operators.inference_processor",
    "PingRxOp": "penstock.operators.ping_rx",
    "PingTensorRxOp": "penstock.operators.ping_tensor_rx",
    "PingTensorTxOp": "penstock.operators.ping_tensor_tx",
    "PingTxOp": "penstock.operators.ping_tx",
    "ProbeOp": "penstock.operators.probe",
    "SegmentationPostprocessorOp": "penstock.operators.segmentation_postprocessor",
}

if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import an operator when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
