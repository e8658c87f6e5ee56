"""holoscan.network_contexts."""

from __future__ import annotations

from headrace_holoscan.core.components import GXFNetworkContext
from headrace_holoscan.signatures import taking

__all__ = ["UcxContext"]


@taking("fragment, serializer=None, name='ucx_context'")
class UcxContext(GXFNetworkContext):
    """What connects the fragments of an application on the SDK. Here it can be made, and has no effect."""
