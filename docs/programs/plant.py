import numpy as np

from headrace import Application, Fragment, op


@op
def camera(*, frames: int = 3):
    for number in range(frames):
        yield np.full((4, 4), number, np.uint8)


@op
def detector(frame, *, threshold: int = 1):
    print("frame", frame[0, 0], "bright" if frame.mean() > threshold else "dark")


class Edge(Fragment):
    def compose(self):
        self.add_operator(camera(self, name="camera"))


class Server(Fragment):
    def compose(self):
        self.add_operator(detector(self, name="detector"))


class Plant(Application):
    def compose(self):
        edge, server = Edge(self, "edge"), Server(self, "server")
        self.add_flow(edge, server, {("camera.out", "detector.frame")}, size=4)


if __name__ == "__main__":
    outcome = Plant().run()
    print(outcome.ended_by, outcome.computes)
