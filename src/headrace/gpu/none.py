"""No device: programs that work on the host alone, and tests of what they do without a device."""

from __future__ import annotations

from headrace.gpu.backend import Backend, DeviceUnavailable


class NoBackend(Backend):
    """What a process has that uses no device."""

    name = "none"
    description = "no device"
    has_devices = False

    def lacks(self, what: str) -> Exception:
        """Return the error for everything: there is no device."""
        return DeviceUnavailable(
            "this program needs a device, but HEADRACE_DEVICE=none disables devices; set it to cuda, sim or auto"
        )
