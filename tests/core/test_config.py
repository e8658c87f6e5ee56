from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipelines import App

from penstock import Application, CountCondition, Operator, OperatorSpec
from penstock.core import ParameterError


class Scale(Operator):
    def setup(self, spec: OperatorSpec) -> None:
        spec.param("factor", 1.0)
        spec.param("label", "")


@pytest.fixture
def app(tmp_path: Path) -> Application:
    file = tmp_path / "settings.yaml"
    file.write_text("scale:\n  factor: 2.5\n  label: fast\nsource:\n  count: 3\nempty:\n")
    app = App(lambda app: None)
    app.config(file)
    return app


def test_a_section_becomes_keyword_arguments(app: Application) -> None:
    scale: Any = Scale(app, **app.kwargs("scale"))
    assert (scale.factor, scale.label) == (2.5, "fast")


def test_a_section_becomes_a_positional_argument(app: Application) -> None:
    scale: Any = Scale(app, app.from_config("scale"))
    assert (scale.factor, scale.label) == (2.5, "fast")


def test_a_single_value_is_itself(app: Application) -> None:
    assert CountCondition(app, app.from_config("source.count")).count == 3
    assert app.kwargs("source.count") == {"count": 3}


def test_the_keys_can_be_listed(app: Application) -> None:
    assert app.config_keys() == {"scale", "scale.factor", "scale.label", "source", "source.count", "empty"}


def test_an_unknown_key_lists_the_keys_beside_it(app: Application) -> None:
    with pytest.raises(KeyError, match=r"has no key 'speed' under 'scale'; it has 'factor', 'label'"):
        app.from_config("scale.speed")


def test_a_value_of_the_wrong_type_is_refused(app: Application, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("scale:\n  factor: fast\n")
    app.config(file)
    with pytest.raises(ParameterError, match="parameter 'factor'"):
        Scale(app, app.from_config("scale"))


def test_a_missing_file_is_told_where_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Application([]).config(tmp_path / "nothing.yaml")


def test_a_file_that_holds_no_sections_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ValueError, match="mapping of sections"):
        Application([]).config(tmp_path / "list.yaml")


def test_asking_without_a_configuration_says_to_give_one() -> None:
    with pytest.raises(RuntimeError, match=r"call config\('file.yaml'\) first"):
        Application([]).kwargs("scale")
