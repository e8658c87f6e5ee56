"""Programs that read their settings from a file and from the command line."""

import os
import sys

from holoscan.conditions import CountCondition
from holoscan.core import Application, Arg, ArgList, Operator, OperatorSpec
from holoscan.operators import PingRxOp, PingTxOp


class SettingsOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.param("gain", 1.0)
        spec.param("label", "none")
        spec.param("sizes", [1])

    def compute(self, op_input, op_output, context):
        print(self.name, self.gain, self.label, self.sizes)


def _write(text, name="app.yaml"):
    with open(name, "w") as file:
        file.write(text)
    return os.path.join(os.getcwd(), name)


def _app(compose=lambda app: None):
    class App(Application):
        pass

    App.compose = compose
    return App()


def settings_of_an_operator():
    def compose(app):
        app.add_operator(SettingsOp(app, CountCondition(app, 1), name="op", **app.kwargs("op")))

    app = _app(compose)
    app.config(_write("op:\n  gain: 2.5\n  label: big\n  sizes: [3, 4]\n"))
    app.run()


def settings_as_arguments():
    def compose(app):
        section = app.from_config("op")
        print(type(section).__name__, section.size)
        app.add_operator(SettingsOp(app, CountCondition(app, 1), section, name="op"))

    app = _app(compose)
    app.config(_write("op:\n  gain: 2.5\n  label: big\n"))
    app.run()


def one_setting_by_its_path():
    app = _app()
    app.config(_write("a:\n  count: 3\n  rate: 1.5\n  word: hello\n  flag: true\n"))
    print(int(app.from_config("a.count")), float(app.from_config("a.rate")))
    print(str(app.from_config("a.word")), bool(app.from_config("a.flag")))
    print(type(app.from_config("a.count")).__name__, app.from_config("a.count").name)


def keys_of_a_configuration():
    app = _app()
    app.config(_write("a:\n  b: 1\n  c:\n    d: 2\ne: 3\n"))
    print(sorted(app.config_keys()))


def sections_that_are_not_there():
    app = _app()
    print(app.kwargs("x"), app.from_config("x").size)
    app.config(_write("empty:\nfull:\n  a: 1\n"))
    print(app.kwargs("missing"), app.from_config("missing").size, app.kwargs("full"))
    print(app.kwargs("empty"))


def an_empty_section_into_an_operator():
    def compose(app):
        app.add_operator(SettingsOp(app, CountCondition(app, 1), name="op", **app.kwargs("op")))

    app = _app(compose)
    app.config(_write("op:\n"))
    app.run()


def a_configuration_without_a_name():
    app = _app()
    app.config("")
    print(app.kwargs("x"), sorted(app.config_keys()))


def a_configuration_that_is_missing():
    app = _app()
    try:
        app.config("missing.yaml")
        print(app.kwargs("x"))
    except RuntimeError:
        print("RuntimeError")


def values_of_a_configuration():
    app = _app()
    text = """values:
  plain: 1
  quoted: "1"
  word: text
  octal: 010
  hexadecimal: 0x10
  long: 1_000
  date: 2024-01-31
  point: 1.5
  exponent: 1e3
  yes_word: yes
  on_word: on
  true_word: true
  nothing: null
  tilde: ~
  numbers: [1, 2, 3]
  mixed: [1, two, 3.5]
  quoted_point: "2.5"
  quoted_true: "true"
  single: '7'
  inner: {a: 1, b: [x, y]}
  empty_text: ""
  negative: -3
  infinite: .inf
"""
    app.config(_write(text))
    for name, value in sorted(app.kwargs("values").items()):
        print(name, type(value).__name__, repr(value))


def a_file_with_a_directive_and_no_document_start():
    app = _app()
    app.config(_write("%YAML 1.2\nop:\n  gain: 2.0\n"))
    print(app.kwargs("op"))


def a_file_with_extensions():
    def compose(app):
        app.add_flow(PingTxOp(app, CountCondition(app, 1), name="tx"), PingRxOp(app, name="rx"))

    app = _app(compose)
    app.config(_write("extensions:\n  - libgxf_std.so\nop:\n  gain: 2\n"))
    print(app.kwargs("op"))


def the_configuration_of_the_command_line():
    _write("op:\n  gain: 1\n", "program.yaml")
    given = _write("op:\n  gain: 7\n", "given.yaml")
    sys.argv = ["program.py", "--config", given, "-x", "rest"]
    app = _app()
    app.config("program.yaml")
    print(app.kwargs("op"), app.argv)


def arguments_given_to_an_application():
    given = _write("op:\n  gain: 7\n", "given.yaml")

    class App(Application):
        def compose(self):
            pass

    app = App(["prog", "--config", given, "-x", "--driver"])
    print(app.argv, os.path.basename(app.options.config_path), app.options.run_driver)


def arguments_that_are_not_the_sdks():
    sys.argv = ["program.py", "--source", "replayer", "--data=here", "-v"]
    app = _app()
    print(app.argv)


def a_list_of_arguments():
    arguments = ArgList()
    print(arguments.size, arguments.name)
    empty = Arg("gain")
    print(empty.name, empty.has_value)

    def compose(app):
        for one in app.from_config("op").args:
            print(one.name, one.has_value)
            arguments.add(one)
        print(arguments.size, [one.name for one in arguments.args])
        app.add_operator(SettingsOp(app, CountCondition(app, 1), arguments, name="op"))

    app = _app(compose)
    app.config(_write("op:\n  gain: 3.5\n  label: from a list\n"))
    app.run()


def an_argument_by_itself():
    def compose(app):
        gain, label = app.from_config("op.gain"), app.from_config("op.label")
        app.add_operator(SettingsOp(app, gain, CountCondition(app, 1), label, name="op"))

    app = _app(compose)
    app.config(_write("op:\n  gain: 4.5\n  label: x\n"))
    app.run()


def an_argument_added_later():
    def compose(app):
        op = SettingsOp(app, CountCondition(app, 1), name="op")
        op.add_arg(app.from_config("op.gain"))
        op.add_arg(label="later")
        app.add_operator(op)

    app = _app(compose)
    app.config(_write("op:\n  gain: 9.5\n"))
    app.run()


def settings_of_a_condition():
    def compose(app):
        tx = PingTxOp(app, CountCondition(app, **app.kwargs("count")), name="tx")
        app.add_flow(tx, PingRxOp(app, name="rx"))

    app = _app(compose)
    app.config(_write("count:\n  count: 2\n"))
    app.run()


def an_application_of_a_configuration():
    class ConfiguredApp(Application):
        def __init__(self, data, source="replayer"):
            super().__init__()
            self.name = "Configured App"
            self.source = source
            self.sample_data_path = data if data != "none" else os.environ.get("HOLOHUB_DATA_PATH", "../data")

        def compose(self):
            print(self.name, self.source, self.sample_data_path)
            self.add_operator(
                SettingsOp(self, CountCondition(self, 1), name=self.source, **self.kwargs(self.source))
            )

    os.environ.pop("HOLOHUB_DATA_PATH", None)
    app = ConfiguredApp("none")
    app.config(_write("replayer:\n  gain: 0.5\n  label: clip\n"))
    app.run()


def a_list_by_its_path():
    app = _app()
    app.config(_write("a:\n  numbers: [1, 2]\n"))
    try:
        print(type(app.from_config("a.numbers")).__name__)
    except RuntimeError:
        print("RuntimeError")
