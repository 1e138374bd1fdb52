"""The tests of this folder that ``make test`` runs on vLLM 0.33.0 too: two minutes in all.

Rule: one of each kind, that goes through all of the engine. ``make test-033`` runs the others.
"""

SMOKE = frozenset(
    {
        # Greedy tokens, whatever is trimmed, and in the processes that vLLM starts by default.
        "test_greedy.py::test_adaptive_verification_gives_the_same_tokens[8-some]",
        "test_greedy.py::test_adaptive_verification_gives_the_same_tokens[8-almost all]",
        "test_greedy.py::test_the_engine_in_processes_of_its_own_gives_the_same_tokens",
        # Sampled tokens.
        "test_sampled.py::test_a_random_pair_follows_the_target[1.0-False]",
        # The config in force, and in the compile hash.
        "test_config.py::test_a_block_is_filled_in_and_stays_plain_json[adaptive_verification_config]",
        "test_config.py::test_flag_and_block_count_in_the_compile_hash_of_every_method",
        # The scorer of the block in force. One with a confidence head costs ten seconds more:
        # vLLM imports itself anew to look at each new class of models.
        "test_scorers.py::test_the_scorer_is_the_one_in_force[estimator]",
        "test_scorers.py::test_what_the_user_wrote_reached_the_estimator[estimator]",
        "test_scorers.py::test_greedy_tokens_are_the_target_s[8-some-estimator]",
    }
)
