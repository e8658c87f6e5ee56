from headrace.viewer.input_spec import DepthMapRenderMode as DepthMapRenderMode
from headrace.viewer.input_spec import InputSpec as InputSpec
from headrace.viewer.input_spec import InputType as InputType
from headrace.viewer.input_spec import View as View
from headrace.viewer.layers import LayerError as LayerError
from headrace.viewer.pictures import write_png as write_png
from headrace.viewer.pixels import ImageFormat as ImageFormat
from headrace.viewer.renderer import Renderer as Renderer
