"""st_rl's ``save`` and ``load``: kinds of checkpoints, torch files, iteration, first episodes, the run folder."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import log, same
from st_rl_style import make, one_line
from torch_checkpoints import checkpoint, weights
from torch_writer import save

from strl_jax.config import ConfigError
from strl_jax.run_folder.errors import CheckpointError
from strl_jax.torch_files.file import TorchFileError


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A runner after two iterations, with its run folder."""
    runner = make(tmp_path_factory.mktemp("run"))
    runner.learn(num_learning_iterations=2, init_at_random_ep_len=True)
    yield runner
    runner.close()


@pytest.fixture
def fresh():
    runner = make()
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return save(tmp_path_factory.mktemp("torch") / "model_5.pt", checkpoint())


# ---- save


def test_save(trained, tmp_path):
    iteration = trained.current_learning_iteration
    for path in (os.path.join(trained.log_dir, f"model_{iteration}.pt"), trained.log_dir / "model.pt"):
        with pytest.raises(ConfigError) as caught:
            trained.save(path)
        one_line(caught.value, str(path), "torch", "last", "numbered", "best")
    for path in ("newest", tmp_path):
        with pytest.raises(ConfigError) as caught:
            trained.save(path)
        one_line(caught.value, str(path), "last", "numbered", "best")
    with pytest.raises(CheckpointError) as caught:
        trained.save(infos={"policy": object()})
    one_line(caught.value, "JSON")
    assert not list(trained.log_dir.glob("*.pt"))


def test_infos_are_stored(tmp_path, fresh):
    runner = make(tmp_path)
    runner.train_state, runner.rollout_state = runner.fresh_states(False)
    runner.save()
    runner.save(path="last", infos={"terrain": [1, 2]})  # the same iteration again
    runner.save()
    runner.close()
    assert fresh.infos is None
    fresh.load(tmp_path)
    assert fresh.infos == {"terrain": [1, 2]}


# ---- load


def test_load_keeps_the_iteration_and_init_from_does_not(trained, fresh):
    fresh.load(trained.log_dir, load_optimizer=False)
    assert (fresh.current_learning_iteration, int(fresh.train_state.iteration)) == (2, 2)
    fresh.learn(1)
    assert (fresh.current_learning_iteration, int(fresh.train_state.iteration)) == (3, 3)
    assert fresh.init_from(trained.log_dir) == []
    assert (fresh.current_learning_iteration, int(fresh.train_state.iteration)) == (0, 0)
    assert same(fresh.train_state.params["policy"], read_best(trained))
    fresh.learn(1)
    assert fresh.current_learning_iteration == 1


def read_best(runner):
    other = make()
    other.load(runner.log_dir, kind="best")
    other.close()
    return other.train_state.params["policy"]


def test_a_loaded_run_continues_in_its_folder_without_its_optimizer(tmp_path):
    first = make(tmp_path)
    first.learn(2)
    first.close()
    second = make(tmp_path)
    second.load(tmp_path, load_optimizer=False)
    second.learn(1)
    second.close()
    assert [line["iteration"] for line in log(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("start", ["init_from", "numbered", "torch"])
def test_another_start_never_continues_in_the_folder(start, trained, file):
    runner, before = make(trained.log_dir), log(trained.log_dir)
    runner.load(trained.log_dir)  # this one could continue
    if start == "init_from":
        runner.init_from(trained.log_dir)
    elif start == "numbered":
        runner.load(trained.log_dir, kind="numbered")
    else:
        runner.load(file)
    with pytest.raises(ConfigError) as caught:
        runner.learn(1)
    one_line(caught.value, str(trained.log_dir), "iteration 2", "another folder")
    assert log(trained.log_dir) == before
    runner.close()


def test_map_location(trained, fresh):
    with pytest.warns(UserWarning, match=r"^map_location: no effect"):
        fresh.load(trained.log_dir, True, "cpu:1")
    assert fresh.train_state.iteration.devices() == {fresh.device}
    with pytest.raises(ConfigError) as caught:
        fresh.load(trained.log_dir, True, "best")
    one_line(caught.value, "map_location", "kind='best'")


def manipulate(variables, stats, meta):
    return jax.tree.map(jnp.zeros_like, variables), stats


def test_a_manipulator_acts_in_init_from_and_not_in_load(trained):
    with pytest.warns(UserWarning, match=r"runner\.ckpt_manipulator: .*init_from"):
        runner = make(ckpt_manipulator=f"{__name__}:manipulate")
    runner.load(trained.log_dir)
    assert same(runner.train_state.params, trained.train_state.params)
    runner.init_from(trained.log_dir)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(runner.train_state.params["policy"]))
    runner.close()


@pytest.mark.parametrize("load_optimizer", [True, False])
def test_torch_file(file, fresh, load_optimizer, tmp_path):
    notes = fresh.load(str(file), load_optimizer=load_optimizer)
    state, model = fresh.train_state, weights()
    kernel = state.params["policy"]["params"]["actor"]["layer_0"]["kernel"]
    np.testing.assert_array_equal(kernel, model["actor.0.weight"].T)
    assert (fresh.current_learning_iteration, int(state.iteration), fresh.progress.env_steps) == (5, 5, 80)
    rate = 3e-4 if load_optimizer else fresh.config.algorithm.learning_rate
    assert float(state.learning_rate["policy"]) == pytest.approx(rate)
    counts = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.dtype == jnp.int32]
    assert [int(count) for count in counts] == [9 if load_optimizer else 0]
    assert any("moments" in line for line in notes) == load_optimizer
    fresh.open(tmp_path / "continued")
    fresh.learn(1)
    assert [line["iteration"] for line in log(tmp_path / "continued")] == [6]


def test_torch_file_that_does_not_fit(file, fresh, tmp_path):
    for options in ({"kind": "best"}, {"iteration": 5}):
        with pytest.raises(ConfigError) as caught:
            fresh.load(file, **options)
        one_line(caught.value, "kind", "iteration", "model_5.pt")
    with pytest.raises(TorchFileError, match="no_such"):
        fresh.load(tmp_path / "no_such.pt")
    with pytest.raises(TorchFileError, match="no model_state_dict"):
        fresh.load(save(tmp_path / "empty.pt", {"iter": 3}))
    changed = checkpoint(model_state_dict=weights(**{"actor.0.weight": np.zeros((5, 3), np.float32)}))
    with pytest.raises(TorchFileError, match=r"actor\.0\.weight"):
        fresh.load(save(tmp_path / "other.pt", changed))
    assert fresh.train_state is None


# ---- learn


def test_first_episodes_of_a_loaded_policy(trained, fresh):
    """They are those that ``learn`` asks for; environments that were loaded continue, and a line says so."""
    ages = {}
    for random in (True, False):
        fresh.load(trained.log_dir, load_optimizer=False)
        fresh.learn(0, init_at_random_ep_len=random)
        ages[random] = np.asarray(fresh.rollout_state.env.step)
    assert (ages[False] == 0).all()
    assert (ages[True] != 0).any()
    fresh.load(trained.log_dir)
    before = fresh.rollout_state
    with pytest.warns(UserWarning, match="init_at_random_ep_len: no effect"):
        fresh.learn(0, init_at_random_ep_len=True)
    assert same(fresh.rollout_state, before)


def test_a_closed_runner_can_go_on_and_a_first_save_writes_a_whole_run_folder(trained, tmp_path):
    runner = make(tmp_path / "run")
    runner.init_from(trained.log_dir)
    runner.save()
    assert {"config.yaml", "config.json", "checkpoints"} <= {path.name for path in (tmp_path / "run").iterdir()}
    runner.close()
    runner.learn(1)
    runner.close()
    assert [line["iteration"] for line in log(tmp_path / "run")] == [1]


@pytest.mark.parametrize("count", [-1, 1.5, "2", None])
def test_a_number_of_iterations_that_is_none(count, fresh):
    with pytest.raises(ConfigError, match=r"num_learning_iterations.*>= 0"):
        fresh.learn(count)
