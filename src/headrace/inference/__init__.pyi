from headrace.inference.model import InferenceError as InferenceError
from headrace.inference.model import Model as Model
from headrace.inference.model import ModelOptions as ModelOptions
from headrace.inference.model import TensorSpec as TensorSpec
from headrace.inference.model import TorchFormat as TorchFormat
from headrace.inference.model import load_model as load_model
