"""Set up ``.venv``: numbered steps, each done once, each safe to interrupt.

`make` runs ``python -m ci.setup`` with whatever Python 3 it finds; :mod:`ci.setup.pythons` finds
the fit one. A step that fails says which it was and what to do; the next run goes on from there.
"""
