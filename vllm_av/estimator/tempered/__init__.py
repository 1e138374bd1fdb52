"""The online acceptance estimator for mixed traffic: coefficients that move with temperature.

    rules      the numbers in it, each with its reason
    formula    the model, its prior and the refit, in NumPy
    reference  the estimator in NumPy, float64: the truth that the kernels are tested against
    scoring    the same in Triton: features and scores
    kernels    and the refit
    online     the estimator's buffers and launches; what a scorer uses

Rule: no vllm import anywhere here; torch and Triton only in ``scoring``, ``kernels``
and ``online``.
"""
