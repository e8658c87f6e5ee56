from headrace import Application, op


@op
def camera():
    yield from range(1_000_000)


@op
def enhance(frame, *, gain: int = 1):
    return frame * gain


@op
def show(frame):
    print("frame", frame)


class Live(Application):
    def compose(self):
        camera(self) >> enhance(self) >> show(self)


if __name__ == "__main__":
    Live().run()
