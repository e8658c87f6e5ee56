"""The table of the SDK's own tests is made from the reports of two runs."""

from __future__ import annotations

from pathlib import Path

from packages.holoscan.tests.sdk_tests import page, reasons_of


def _report(path: Path, **results: str) -> None:
    cases = "".join(
        f'<testcase classname="core.test_arg.TestArg" name="{name}">{f"<{result}/>" if result else ""}</testcase>'
        for name, result in results.items()
    )
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


def test_a_test_counts_if_it_passes_on_the_sdk(tmp_path: Path) -> None:
    _report(tmp_path / "core-test_arg.sdk.xml", a="", b="", c="", d="failure", e="skipped")
    _report(tmp_path / "core-test_arg.layer.xml", a="", b="failure", c="error", d="", e="")
    (tmp_path / "reasons.tsv").write_text("test_arg::TestArg::b\tlooks inside\n")
    text = page(tmp_path, reasons_of([tmp_path / "reasons.tsv"]))
    assert "| `test_arg` | 5 | 3 | 1 |\n| all | 5 | 3 | 1 |" in text
    assert text.endswith("| looks inside | 1 |\n| not looked at yet | 1 |\n")
