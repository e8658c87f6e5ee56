"""Shapes over a picture that change from frame to frame, by specifications sent at run time."""

import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.operators import HolovizOp


class GeometryOp(Operator):
    def __init__(self, *args, **kwargs):
        self.count = 0
        super().__init__(*args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("outputs")
        spec.output("output_specs")

    def compute(self, op_input, op_output, context):
        self.count += 1
        boxes = np.array([[0.25, 0.25], [0.75, 0.75]], np.float32)
        labels = np.array([[0.0, 0.0, 0.8]], np.float32)
        image = np.zeros((24, 32, 4), np.uint8)
        image[..., 3] = 255
        op_output.emit({"image": image, "boxes": boxes, "labels": labels}, "outputs")

        specs = []
        spec = HolovizOp.InputSpec("boxes", HolovizOp.InputType.RECTANGLES)
        spec.color = [0.0, 1.0, 0.0, 1.0] if self.count == 3 else [1.0, 0.0, 0.0, 1.0]
        spec.line_width = 1
        specs.append(spec)
        spec = HolovizOp.InputSpec("labels", "text")
        spec.text = [f"{self.count}"]
        spec.color = [1.0, 1.0, 1.0, 1.0]
        spec.priority = 2
        view = HolovizOp.InputSpec.View()
        view.offset_x, view.width, view.height = 0.0, 0.5, 0.5
        spec.views = [view]
        specs.append(spec)
        op_output.emit(specs, "output_specs")


class GeometryApp(Application):
    def compose(self):
        source = GeometryOp(self, CountCondition(self, 3), name="source")
        visualizer = HolovizOp(
            self,
            name="holoviz",
            width=32,
            height=24,
            tensors=[{"name": "image", "type": "color"}, {"name": "boxes", "type": "rectangles"}],
            key_callback=lambda key, action, modifiers: None,
            window_close_callback=lambda: None,
        )
        self.add_flow(source, visualizer, {("outputs", "receivers"), ("output_specs", "input_specs")})


if __name__ == "__main__":
    GeometryApp().run()
