"""The table of environments."""

from nerd_gym.registration import ENVS


def test_horizons_of_table_and_tasks_agree():
    assert all(spec.horizon == spec.task_class().horizon for spec in ENVS.values())
