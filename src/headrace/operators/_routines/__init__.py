"""The computations of the image operators, each in CUDA C++ and in NumPy with the same result."""
