"""Tests run on the simulated device unless they ask for another."""

import os

os.environ.setdefault("PENSTOCK_DEVICE", "sim")


def pytest_report_header() -> str:
    from penstock._runtime.compiled import is_compiled

    return f"penstock: {'compiled' if is_compiled() else 'pure Python'}"
