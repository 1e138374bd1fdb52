"""The numbers of the estimator for mixed traffic, each with its reason. Not settings.

Rule: read by the NumPy reference and by the kernels, so that both take the same decisions.
"Measured" is prequential log-loss in the real engine on drafters of this package, temperatures
0 to 1.3 mixed per request, against the best fit of a single feature at each temperature.
"""

KNOTS = (0.0, 0.3, 0.6, 1.0, 1.4)
"""Temperatures between which slopes and level are linear; beyond the ends they are constant. Below
0.1 and above 1.3 they hardly move; four or six knots give the same log-loss within 0.1%."""

FEATURES = 5
"""log q, -log(1 - q), log(1 + margin), before, and 1 for the level."""

BEFORE_CLAMP = 8.0
"""A log-odds counts for no more than this where it speaks for later drafts: one draft that is quite
certain says no more than one that is nearly so."""

LABEL_SAYS = (0.8, 0.8, 0.2, 0.8, 0.2)
"""Information that a label holds about a feature's coefficient, p (1 - p) x^2 with p (1 - p) = 0.2
and features of size 2 or, the logarithm of the margin, 1, as drafts of real pairs have them. Turns
``damping``, which is in labels, into the precision of the start values."""

START_MEMORY = 250.0
"""Labels after which the start values count e times less: each coefficient's own labels. They are a
guess, and where nearly all labels are alike a label says too little to outweigh a lasting one."""

START_REMAINS = 0.01
"""The start values never count less than this share: a coefficient without labels stays put."""

FEWEST_LABELS = 160.0
"""There is no refit before there were that many labels at all: with one request in flight the first
ones are of one text at one temperature, and a fit of them can be worse than the start values."""

SURPRISE = 0.5
"""Labels that were given less than this probability enter the curvature with the weight of a bound
on the loss, tanh(z/2) / (2 z), instead of p (1 - p): where the coefficients are far off, p (1 - p)
is next to 0 and Newton's step without end."""
