"""Programs that read their settings from a file and from the command line."""

import os

from holoscan.conditions import CountCondition
from holoscan.core import Application, Arg, ArgList, Operator, OperatorSpec


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


def one_setting_by_its_path():
    app = _app()
    app.config(_write("a:\n  count: 3\n  rate: 1.5\n  word: hello\n  flag: true\n"))
    print(int(app.from_config("a.count")), float(app.from_config("a.rate")))
    print(str(app.from_config("a.word")), bool(app.from_config("a.flag")))
    print(type(app.from_config("a.count")).__name__, app.from_config("a.count").name)


def sections_that_are_not_there():
    app = _app()
    print(app.kwargs("x"), app.from_config("x").size)
    app.config(_write("empty:\nfull:\n  a: 1\n"))
    print(app.kwargs("missing"), app.from_config("missing").size, app.kwargs("full"))
    print(app.kwargs("empty"))


def a_configuration_that_is_missing():
    app = _app()
    try:
        app.config("missing.yaml")
        print(app.kwargs("x"))
    except RuntimeError:
        print("RuntimeError")


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


def a_list_by_its_path():
    app = _app()
    app.config(_write("a:\n  numbers: [1, 2]\n"))
    try:
        print(type(app.from_config("a.numbers")).__name__)
    except RuntimeError:
        print("RuntimeError")
