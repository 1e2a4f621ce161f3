"""Whole runs with example-level privacy: what is accounted, written, refused and repeated."""

import pytest

from fedbn_flower.job.tasks import task_of
from fedbn_flower.privacy import accounts
from fedbn_flower.privacy.example_privacy import plans_of, terms_of
from fedbn_flower.server.federation import Federation

from .runs import of_examples


def test_epsilon_is_that_of_the_client_with_the_greatest(configured):
    """Clients with 20 and 50 examples, batches of 8: 3 and 7 steps of probabilities 8/20 and 8/50."""
    config = of_examples(configured, rounds=4, local_epochs=2, batch_size=8)
    terms = terms_of(config, frozenset({20, 50}))
    by_hand = [
        max(
            accounts.epsilon(1.0, accounts.Plan("poisson", 8 / 20, 20, 2 * 3 * t, 1e-3)),
            accounts.epsilon(1.0, accounts.Plan("poisson", 8 / 50, 50, 2 * 7 * t, 1e-3)),
        )
        for t in (1, 4)
    ]
    assert [terms.epsilon(1), terms.epsilon(4)] == by_hand


@pytest.mark.slow
def test_the_noise_is_enough_for_the_client_that_needs_most(configured):
    """Sizes 32 and 40 in batches of 32: 4 steps with all, or 8 with probability 4/5, which cost more.

    Noise for the first alone would give 10.54.
    """
    config = of_examples(configured, dp_noise=0, dp_epsilon=8, rounds=4, batch_size=32)
    terms = terms_of(config, frozenset({32, 40}))
    plans = [accounts.Plan("poisson", 1.0, 32, 4, 1e-3), accounts.Plan("poisson", 0.8, 40, 8, 1e-3)]
    assert list(terms.plans) == plans
    assert terms.noise == max(accounts.noise_for(8, plan) for plan in plans)
    assert terms.epsilon(4) == pytest.approx(7.99, abs=0.01)
    assert terms.epsilon(4) <= 8
    first = accounts.noise_for(8, plans[0])
    assert accounts.epsilon(first, plans[1]) == pytest.approx(10.54, abs=0.01)


def test_clients_that_cannot_have_the_greatest_epsilon_are_left_out(configured):
    """As many steps with a smaller probability; one client has fewer examples than a batch."""
    config = of_examples(configured, rounds=1, batch_size=8)
    plans = plans_of(config, frozenset({0, 5, 20, 22, 24, 25, 26}))
    assert [(p.population, p.probability, p.rounds) for p in plans] == [
        (5, 1.0, 1), (20, 8 / 20, 3), (26, 8 / 26, 4),
    ]  # fmt: skip


def test_what_a_client_does_is_what_is_accounted(configured):
    config = of_examples(configured, partition="dirichlet:0.5")
    inputs = Federation(config).inputs
    (accounted,) = terms_of(config, frozenset(map(int, inputs.partitions.train.sizes))).plans[-1:]
    tasks = [task_of(inputs, partition_id) for partition_id in range(3)]
    task = next(one for one in tasks if len(one.train) == accounted.population)
    steps = config.rounds * task.training.steps(task.train)
    assert (accounted.rounds, accounted.probability) == (steps, min(1, 240 / len(task.train)))
    mechanism = task.private(1)
    assert (mechanism.clip, mechanism.noise) == (1.0, 1.0)


def test_with_a_seed_each_client_and_round_has_numbers_of_its_own(configured):
    inputs = Federation(of_examples(configured)).inputs
    drawn = [
        task_of(inputs, client).private(server_round).numbers.uniform(1)[0]
        for client, server_round in ((0, 1), (1, 1), (0, 2), (0, 1))
    ]
    assert len(set(drawn)) == 3
    assert drawn[0] == drawn[3]
