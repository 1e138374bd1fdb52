"""What a report says in a few lines, on the page and on the terminal.

Rule: every sentence is computed from the figures, and a loss is said as plainly as a gain.
"""

import math

from vllm_av.replay.report.build import HEAD, OPTIMUM, SERVED, predictor
from vllm_av.replay.report.html import text
from vllm_av.replay.report.model import Report
from vllm_av.replay.report.predictors import Predictor
from vllm_av.replay.report.words import count, number, share


def sentences(report: Report) -> list[str]:
    """How many labels, how good, against what; each a line."""
    facts, scorer = report.facts, predictor(report, report.scorer)
    assert scorer is not None
    lines = [
        (
            f"{count(facts.total.labels)} labelled drafts of {report.source}, up to "
            f"{report.info.num_speculative_tokens} draft tokens a step."
        )
    ]
    seen = scorer.conditional.figures
    if seen.labels:
        lines.append(
            f"On average {_named(scorer)} predicted an acceptance of {share(seen.predicted)} where "
            f"{share(seen.observed)} was observed (ECE {number(seen.ece_mass, 4)}; chance alone "
            f"gives a perfect predictor {number(seen.chance_mass, 4)}), with a log-loss of "
            f"{number(seen.log_loss, 4)} and an AUC of {number(seen.auc, 4)}."
        )
        compared = [p for p in report.predictors if p is not scorer]
        lines.extend(_against(scorer, p) for p in compared if p.conditional.figures.labels)
    else:
        lines.append("No label is left to judge a predictor by.")
    return [text(line, 1000) for line in lines]


def _against(scorer: Predictor, other: Predictor) -> str:
    own, its = scorer.conditional.figures, other.conditional.figures
    if own.labels != its.labels:
        return (
            f"For {count(its.labels)} of these labels there is a prediction of {_named(other)}: "
            f"log-loss {number(its.log_loss, 4)}, AUC {number(its.auc, 4)}."
        )
    gap = own.log_loss / its.log_loss - 1.0 if its.log_loss else math.nan
    than = "above" if gap >= 0 else "below"
    return (
        f"Its log-loss is {share(abs(gap))} {than} that of {_named(other)} "
        f"({number(its.log_loss, 4)}; ECE {number(its.ece_mass, 4)}, AUC {number(its.auc, 4)})."
    )


def _named(predictor: Predictor) -> str:
    the = "the " if predictor.key in (OPTIMUM, HEAD) else ""
    if predictor.key == SERVED:
        return f"the scorer {predictor.title}"
    return f"{the}{predictor.title}"
