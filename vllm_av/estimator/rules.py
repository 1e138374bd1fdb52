"""The numbers of the safe step, each with its reason. Not settings: nobody has a use for others.

Rule: read by the NumPy reference and by the kernels, so that both take the same decisions.
"""

PROVEN_REACH = 1.75
"""A Newton step that changes no logit of its round by more than this lowers the round's loss,
whatever the features: e^R - 1 - R <= R^2 holds up to 1.79."""

FIRST_REACH = 8.0
"""The first step is taken in full if it changes no logit by more than this. From upstream's start,
sound first steps reach up to 5."""

LATER_REACH = 4.0
"""The same of every later step. Newton's method on a single logit z of rate 1/2 swings from side to
side, 2 z = sinh z, from a change of 4.35 on."""

REACH_AFTER_UNDO = 0.25
"""An undone step's successor may reach this share of it; every step that stands doubles it again,
so that undoing cannot go round in circles."""

LEAST_REACH = 0.125
"""The share above stops here: five steps that stand bring the full reach back."""

CHANCE = 3.0
"""A step is undone when the older coefficients are better by more than this many standard
deviations of the difference that chance alone makes. Near the optimum the difference is chance."""

NATS_REMEMBERED = 125.0
"""In the long run a step damped by n / (n + D) remembers n + 2 D labels, and chance costs 1/2 nat
for each coefficient. With labels of H nats worth 125 nats in all, that is 0.4% of H."""

LABELS_REMEMBERED = 500.0
"""Rounds with fewer labels are held to what this many would need: upstream's damping is right for
short rounds as long as the labels are not nearly all alike."""

FEW_LABELS = 100.0
"""Below this many labels a round damping is upstream's: a handful that are all alike is chance, and
upstream's damping holds its step short."""

RATE_MEMORY = 0.8
"""What is left of the acceptance rates' counts after a round: they remember five rounds."""

RATES_SEE_LABELS = 1.0
"""Nats that a rate is better on the labels it was counted from, by that alone; per position, and
once more for all of them."""

TIE = 1e-5
"""Losses that differ by less than this share are equal: the scores are float32 on the device."""

FLAT = 1e17
"""R G / C counts as no more than this where the loss is flat: a change of 39 in the logit."""
