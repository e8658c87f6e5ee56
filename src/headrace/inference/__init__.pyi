from headrace.inference.errors import InferenceError as InferenceError
from headrace.inference.loading import load_model as load_model
from headrace.inference.model import Model as Model
from headrace.inference.model import ModelOptions as ModelOptions
from headrace.inference.tensor_spec import TensorSpec as TensorSpec
