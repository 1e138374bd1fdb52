"""Online learners to compare with; none of them serves.

Rule: each is set as favourably to it as its own settings allow.
"""
