"""Set up ``.venv-033``: vLLM 0.33.0 on the CPU, before there is a CPU build of it.

Its Python, as its wheel brings it, over the compiled operators of the CPU build in ``.venv``, and
everything else shared with ``.venv`` by hard links. It shows what 0.33.0's Python does, and says
nothing on its compiled code, its torch, CUDA graphs, GPU backends or speed.

``make setup-033`` runs ``.venv/bin/python -m ci.hybrid``; the steps are :mod:`ci.setup`'s in kind.
"""
