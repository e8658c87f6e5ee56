"""Three filters on one image, with the MONAI Deploy App SDK: the shape of its simple imaging application."""

import logging
from pathlib import Path

import numpy as np
from monai.deploy.conditions import CountCondition
from monai.deploy.core import AppContext, Application, Fragment, Operator, OperatorSpec
from PIL import Image


def around(image, reach):
    """Yield the image moved by up to `reach` pixels in each direction, row by row."""
    padded = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    rows, columns = image.shape[:2]
    for down in range(2 * reach + 1):
        for right in range(2 * reach + 1):
            yield padded[down : down + rows, right : right + columns]


class SobelOperator(Operator):
    """Reads the first image of a folder, and finds its edges."""

    DEFAULT_INPUT_FOLDER = Path.cwd() / "input"

    def __init__(self, fragment: Fragment, *args, input_path: Path, **kwargs):
        self.index = 0
        self.input_path = input_path if input_path else SobelOperator.DEFAULT_INPUT_FOLDER
        # Need to call the base class constructor last
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out1")

    def compute(self, op_input, op_output, context):
        self.index += 1
        print(f"Number of times operator {self.name} was called: {self.index}")
        input_path = self.input_path
        if input_path.is_dir():
            input_path = next(input_path.glob("*.*"))
        data_in = np.asarray(Image.open(input_path))[:, :, :3].astype(np.float64)
        near = list(around(data_in, 1))
        across = sum(w * near[i] for i, w in ((0, -1), (3, -2), (6, -1), (2, 1), (5, 2), (8, 1)))
        down = sum(w * near[i] for i, w in ((0, -1), (1, -2), (2, -1), (6, 1), (7, 2), (8, 1)))
        op_output.emit(np.sqrt(across * across + down * down) / 8, "out1")


class MedianOperator(Operator):
    """Takes the median of each pixel's surroundings."""

    def __init__(self, fragment: Fragment, *args, **kwargs):
        self.index = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.input("in1")
        spec.output("out1")

    def compute(self, op_input, op_output, context):
        self.index += 1
        print(f"Number of times operator {self.name} was called: {self.index}")
        data_in = op_input.receive("in1")
        op_output.emit(np.median(np.stack(list(around(np.asarray(data_in), 1))), axis=0), "out1")


class GaussianOperator(Operator):
    """Blurs, and writes the picture."""

    def __init__(self, fragment: Fragment, *args, output_folder: Path, **kwargs):
        self.output_folder = output_folder
        self.index = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.input("in1")
        spec.param("weights", [1, 4, 6, 4, 1])

    def compute(self, op_input, op_output, context):
        self.index += 1
        print(f"Number of times operator {self.name} was called: {self.index}")
        weights = [a * b for a in self.weights for b in self.weights]
        moved = around(np.asarray(op_input.receive("in1")), 2)
        blurred = sum(weight * each for weight, each in zip(weights, moved, strict=True)) / sum(weights)
        self.output_folder.mkdir(parents=True, exist_ok=True)
        picture = np.rint(np.clip(blurred, 0, 255)).astype(np.uint8)
        Image.fromarray(picture).save(self.output_folder / "final_output.ppm")


class App(Application):
    """A very basic application."""

    name = "simple_imaging_app"
    description = "This is a very simple application."
    version = "0.1.0"

    def compose(self):
        app_context = AppContext({})  # the paths are in environment variables
        sobel_op = SobelOperator(
            self, CountCondition(self, 1), input_path=Path(app_context.input_path), name="sobel_op"
        )
        median_op = MedianOperator(self, name="median_op")
        gaussian_op = GaussianOperator(self, output_folder=Path(app_context.output_path), name="gaussian_op")
        self.add_flow(sobel_op, median_op, {("out1", "in1")})
        self.add_flow(median_op, gaussian_op, {("out1", "in1")})


if __name__ == "__main__":
    logging.info(f"Begin {__name__}")
    app = App()
    app.run()
    print(app.name, app.description, app.version)
    logging.info(f"End {__name__}")
