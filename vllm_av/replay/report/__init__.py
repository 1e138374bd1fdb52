"""A page about a trace: what is in it, how well scorers predict it, what would predict it best.

Rule: a report needs no network, no vLLM and no plotting library, to make it or to read it.
"""
