"""Small programs written for the Holoscan SDK, which do the same there and through the layer.

A file of `programs` is a family of programs with one head of imports and operators. Each of its public functions is
one program. `recorded.json` holds what the SDK 4.6.0 does with each of them (`record` writes it), and `differences`
says where headrace does something else on purpose.
"""
