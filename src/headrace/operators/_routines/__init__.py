"""The computations of the image operators: in CUDA C++ and NumPy, with one result, and by OpenCV on the host."""
