"""The online acceptance estimator: will the target accept this draft token?

    settings   what a user can set, with the source of each number
    formula    the formulas, in NumPy: features, normal equations, the step and what makes it safe
    rules      the numbers in them, each with its reason
    reference  the estimator in NumPy, float64: the truth that the kernels are tested against
    kernels    the same in Triton
    online     the estimator's buffers and launches; what a scorer uses

Rule: no vllm import anywhere here; torch and Triton only in ``kernels`` and ``online``.
"""
