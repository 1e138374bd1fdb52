"""The tests of this folder that ``make test`` runs on vLLM 0.33.0 too: two minutes in all.

Rule: one of each kind, that goes through all of the engine. ``make test-033`` runs the others.
"""

SMOKE = frozenset(
    {
        # Greedy tokens, whatever is trimmed, and in the processes that vLLM starts by default.
        "test_greedy.py::test_adaptive_verification_gives_the_same_tokens[some]",
        "test_greedy.py::test_the_engine_in_processes_of_its_own_gives_the_same_tokens",
        # Steps that trim nothing, between others; and nothing is compiled while requests wait.
        "test_untrimmed.py::test_the_rest_is_reallocated_as_before",
        "test_warm.py::test_no_request_waits_for_a_compiler[online_estimator]",
        # The config in force, and in the compile hash.
        "test_config.py::test_a_block_is_filled_in_and_stays_plain_json[adaptive_verification_config]",
        "test_config.py::test_flag_and_block_count_in_the_compile_hash_of_every_method",
        "test_scorers.py::test_what_the_user_wrote_reached_the_estimator[numbers]",
        # Every reason at once, or a fixed K, at both of the places where the check is made.
        "test_check.py::test_five_faults_are_told_at_once",
        "test_check_layers.py::test_a_fixed_k_builds_the_target_again_without_adaptive_verification[built]",
        "test_check_selector.py::test_a_backend_that_is_named_stays[kind0]",
        # What only the target applies, and what is kept over a restart.
        "test_mask.py::test_each_constraint_is_told_of_its_request_and_of_no_other",
        "test_state.py::test_it_goes_on_as_if_it_had_never_stopped[online_estimator]",
        # Of the matrix, a drafter of each speculator that speaks to scorers in a way of its own.
        "test_matrix.py::test_greedy[EAGLE-3, few tokens-auto]",
        "test_matrix.py::test_greedy[MTP of modules-auto]",
        "test_matrix.py::test_greedy[MTP of Gemma 4-max_probability]",
        "test_matrix.py::test_greedy[LiLiCorr-max_probability]",
        "test_matrix.py::test_greedy[DSpark, head-auto]",
        "test_matrix.py::test_greedy[DSpark, few tokens-auto]",
        "test_matrix.py::test_sampled[draft model-auto]",
        "test_matrix.py::test_sampled[DFlash2-auto]",
    }
)
