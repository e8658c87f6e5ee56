"""The computations of the image operators: in CUDA C++ and NumPy, with the same result, and by OpenCV on the host."""
