"""Which attention backend vLLM takes for a layer, and what it can do.

``table`` knows it from reading vLLM's source; ``asked`` asks the installed vLLM's classes in a
process of its own, which pretends to have the GPU; ``classes`` asks them in this process.

Rule: an answer says how it is known, and both ways give the same answer.
"""
