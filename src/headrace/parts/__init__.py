"""Parts: the fragments of an application in processes of their own.

`cut` keeps the operators of one part and puts link operators in the place of the flows to the other parts.
"""
