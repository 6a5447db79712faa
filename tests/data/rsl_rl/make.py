"""Trains small policies with a real rsl_rl and stores checkpoints with their outputs; see README.md.

``python make.py FOLDER VARIANT ...``, with rsl-rl-lib and torch installed, which the tests do not need.
"""

import importlib.metadata
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner

VERSION = importlib.metadata.version("rsl-rl-lib")
MAJOR = int(VERSION.split(".")[0])
SIZES = {"proprio": 3, "command": 2, "privileged": 4}
GROUPS = {"small": ["proprio", "command"], "large": ["command", "privileged", "proprio"], "novel": ["privileged"]}
ACTIONS, ENVS, DT = 2, 4, 0.1
ADAPTIVE = {"schedule": "adaptive", "learning_rate": 1e-3, "num_learning_epochs": 2, "num_mini_batches": 2}
RND = {
    "weight": 2.0,
    "num_outputs": 2,
    "predictor_hidden_dims": [5],
    "target_hidden_dims": [3, 4],
    "activation": "elu",
    "learning_rate": 5e-4,
    "state_normalization": True,
    "reward_normalization": True,
}
LSTM = {"class_name": "RNNModel", "rnn_type": "lstm", "rnn_hidden_dim": 4, "rnn_num_layers": 2}
GRU = {"class_name": "RNNModel", "rnn_type": "gru", "rnn_hidden_dim": 5, "rnn_num_layers": 1}
MLP = {"class_name": "MLPModel"}
# Variant -> class and normalisation of the actor (student) and of the critic (teacher), the kind of std, and the
# observation sets.
VARIANTS = {
    "mlp": (MLP, True, MLP, True, "scalar", ("small", "large")),
    "lstm": (LSTM, True, LSTM, False, "log", ("small", "large")),
    "gru": (GRU, True, GRU, True, "scalar", ("small", "small")),
    "rnd": (MLP, False, MLP, False, "log", ("small", "small")),
    "heteroscedastic": (MLP, False, MLP, False, "state", ("small", "small")),
    "student": (MLP, True, MLP, True, "scalar", ("small", "large")),
    "student_gru": (GRU, True, GRU, False, "log", ("small", "large")),
}


class Env(VecEnv):
    """Random observations; the reward is larger for actions near the first two numbers of ``proprio``."""

    num_envs, num_actions, max_episode_length = ENVS, ACTIONS, 5
    device, cfg, step_dt = "cpu", {}, DT

    def __init__(self):
        self.random = torch.Generator().manual_seed(1)
        self.episode_length_buf = torch.zeros(ENVS, dtype=torch.long)
        self.obs = self._draw()

    @property
    def unwrapped(self):
        return self

    def reset(self):
        return self.get_observations()

    def get_observations(self):
        return as_rsl_rl(self.obs)

    def step(self, actions):
        reward = -((actions - self.obs["proprio"][:, :ACTIONS]) ** 2).sum(dim=1)
        self.obs = self._draw()
        self.episode_length_buf += 1
        done = self.episode_length_buf >= self.max_episode_length
        self.episode_length_buf[done] = 0
        seen = as_rsl_rl(self.obs)
        extras = {"time_outs": done.float()}
        if MAJOR < 3:
            return seen[0], reward, done.long(), extras | seen[1]
        return seen, reward, done.long(), extras

    def _draw(self):
        return draw(self.random)


def draw(random: torch.Generator) -> dict[str, torch.Tensor]:
    """Observations with other means and deviations for every group."""
    return {
        name: 1.0 + number + (0.5 + number) * torch.randn(ENVS, size, generator=random)
        for number, (name, size) in enumerate(SIZES.items())
    }


def joined(obs: dict[str, torch.Tensor], group: str) -> torch.Tensor:
    return torch.cat([obs[name] for name in GROUPS[group]], dim=-1)


def as_rsl_rl(obs: dict[str, torch.Tensor]):
    """Observations as rsl_rl wants them; version 2 has no names for parts of an observation set."""
    if MAJOR >= 3:
        from tensordict import TensorDict

        return TensorDict(dict(obs), batch_size=[ENVS])
    sets = {"critic": joined(obs, Env.sets[1]), "teacher": joined(obs, Env.sets[1]), "rnd_state": joined(obs, "novel")}
    return joined(obs, Env.sets[0]), {"observations": sets}


def runner_config(variant: str, distillation: bool) -> dict:
    """The ``train_cfg`` of a variant: that of the distillation, or of PPO (for a student that of its teacher)."""
    (actor, actor_norm, critic, critic_norm, std, sets) = VARIANTS[variant]
    student = variant.startswith("student")
    if student and not distillation:  # the teacher of the distillation, which sees the large set
        actor, actor_norm, sets, std = critic, critic_norm, (sets[1], sets[1]), "scalar"
    names = ("student", "teacher") if distillation else ("actor", "critic")
    algorithm = {"class_name": "Distillation", "learning_rate": 1e-3, "gradient_length": 2} if distillation else {}
    if not distillation:
        algorithm = {"class_name": "PPO", **ADAPTIVE} | ({"rnd_cfg": dict(RND)} if variant == "rnd" else {})
    config = {
        "num_steps_per_env": 6,
        "save_interval": 100,
        "algorithm": algorithm,
        "obs_groups": {name: GROUPS[group] for name, group in zip(names, sets, strict=True)},
        "multi_gpu": None,
    }
    config["obs_groups"]["rnd_state"] = GROUPS["novel"]
    if MAJOR >= 4:
        models = {}
        for name, model, norm in zip(names, (actor, critic), (actor_norm, critic_norm), strict=True):
            models[name] = model | {"hidden_dims": [6, 5] if name in names[:1] else [4], "obs_normalization": norm}
        models[names[0]] |= deviation(std)
        if distillation:
            models["teacher"] |= deviation("scalar")  # the teacher of every variant was trained with it
        if student and not distillation:  # as in the distillation
            models["actor"]["hidden_dims"] = [4]
        return config | models
    config["policy"] = policy_config(actor, critic, (actor_norm, critic_norm), std, distillation)
    if student and not distillation:
        config["policy"]["actor_hidden_dims"] = [4]
    if not distillation:
        config["obs_groups"]["policy"] = config["obs_groups"].pop("actor")
    else:
        config["obs_groups"]["policy"] = config["obs_groups"].pop("student")
    if MAJOR == 2:
        config["empirical_normalization"] = actor_norm
        if variant == "rnd":  # version 2 normalises both or none
            config["empirical_normalization"] = True
    return config


def deviation(std: str) -> dict:
    """Keywords of a model of rsl_rl 4 or 5 for its standard deviation."""
    if MAJOR == 4:
        kind = {"state_dependent_std": True} if std == "state" else {"noise_std_type": std}
        return {"stochastic": True, "init_noise_std": 0.7, **kind}
    if std == "state":
        return {"distribution_cfg": {"class_name": "HeteroscedasticGaussianDistribution", "init_std": 0.7}}
    return {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.7, "std_type": std}}


def policy_config(actor: dict, critic: dict, norms: tuple[bool, bool], std: str, distillation: bool) -> dict:
    """The policy of rsl_rl 2 or 3."""
    names = ("student", "teacher") if distillation else ("actor", "critic")
    kind = "StudentTeacher" if distillation else "ActorCritic"
    recurrent = {key: actor[key] for key in actor if key != "class_name"}
    if recurrent and MAJOR == 2:
        recurrent["rnn_hidden_size"] = recurrent.pop("rnn_hidden_dim")
    config = {
        "class_name": kind + ("Recurrent" if recurrent else ""),
        f"{names[0]}_hidden_dims": [6, 5],
        f"{names[1]}_hidden_dims": [4],
        "activation": "elu",
        "init_noise_std": 0.7,
        **recurrent,
    }
    if MAJOR == 3:
        config |= {f"{name}_obs_normalization": norm for name, norm in zip(names, norms, strict=True)}
    if std == "state":
        config["state_dependent_std"] = True
    elif MAJOR == 3 or not distillation:
        config["noise_std_type"] = std
    if distillation and "class_name" in critic and critic["class_name"] == "RNNModel":
        config["teacher_recurrent"] = True
    return config


def make(folder: Path, variant: str) -> None:
    """Trains one variant for three iterations and writes ``rsl_rl_VERSION_VARIANT`` as .pt and .npz."""
    torch.manual_seed(0)
    logs = tempfile.mkdtemp()
    path = folder / f"rsl_rl_{MAJOR}_{variant}.pt"
    teacher = path.with_suffix(".teacher")
    Env.sets = VARIANTS[variant][5]
    student = variant.startswith("student")
    if student:
        Env.sets = (VARIANTS[variant][5][1],) * 2
    runner = OnPolicyRunner(Env(), runner_config(variant, False), logs)
    runner.learn(3)
    if student:
        from rsl_rl import runners

        runner.save(str(teacher))
        Env.sets = VARIANTS[variant][5]
        kind = getattr(runners, "DistillationRunner", OnPolicyRunner)
        runner = kind(Env(), runner_config(variant, True), logs)
        runner.load(str(teacher))
        runner.learn(2)
        teacher.unlink()
    runner.save(str(path))
    np.savez_compressed(path.with_suffix(".npz"), **record(runner, student, variant == "rnd"))


def record(runner: OnPolicyRunner, student: bool, rnd: bool) -> dict[str, np.ndarray]:
    """Outputs on six steps, the moments by parameter, and the intrinsic rewards."""
    random, alg = torch.Generator().manual_seed(7), runner.alg
    (alg.eval_mode if hasattr(alg, "eval_mode") else runner.eval_mode)()
    for name in ("policy", "actor", "critic", "student", "teacher"):
        if hasattr(alg, name):
            getattr(alg, name).reset()  # the memory after training is not in the file
    out = {"learning_rate": np.float64(alg.learning_rate), "iteration": np.int64(runner.current_learning_iteration)}
    observed = [draw(random) for _ in range(6)]
    dones = torch.rand(6, ENVS, generator=random) < 0.3
    for name in SIZES:
        out[f"obs/{name}"] = np.stack([obs[name].numpy() for obs in observed])
    out["dones"] = dones.numpy()
    with torch.inference_mode():
        outputs = [outputs_of(runner, obs, done, student) for obs, done in zip(observed, dones, strict=True)]
        out["actions"], out["second"] = (np.stack([x[index].numpy() for x in outputs]) for index in (0, 1))
        if rnd:
            alg.rnd.eval()
            state = [joined(obs, "novel") if MAJOR < 3 else as_rsl_rl(obs) for obs in observed]
            rewards = [alg.rnd.get_intrinsic_reward(x) for x in state]
            rewards = [x[0] if isinstance(x, tuple) else x for x in rewards]
            out["intrinsic"], out["rnd_weight"] = np.stack([x.numpy() for x in rewards]), np.float64(alg.rnd.weight)
    optimizers = [(module, alg.optimizer) for module in modules(alg, student)]
    if rnd:
        optimizers.append((("rnd_state_dict.", alg.rnd), getattr(alg, "rnd_optimizer", None) or alg.rnd.optimizer))
    for (prefix, module), optimizer in optimizers:
        for name, parameter in module.named_parameters():
            for key, value in optimizer.state.get(parameter, {}).items():
                out[f"optimizer/{prefix}{name}/{key}"] = value.numpy()
    return out


def modules(alg, student: bool) -> list:
    """(Prefix of the names in the file, module) of what the optimiser trains."""
    if MAJOR < 4:
        return [("", alg.policy)]
    if student:
        return [("student_state_dict.", alg.student)]
    return [("actor_state_dict.", alg.actor), ("critic_state_dict.", alg.critic)]


def outputs_of(runner: OnPolicyRunner, obs: dict, done: torch.Tensor, student: bool) -> tuple:
    """The actor's mean and the value, or the student's and the teacher's actions; then ended episodes are reset."""
    alg = runner.alg
    if MAJOR >= 4:
        seen = as_rsl_rl(obs)
        pair = (alg.student, alg.teacher) if student else (alg.actor, alg.critic)
        outputs = tuple(model(seen) for model in pair)
        for model in pair:
            model.reset(done)
        return outputs
    seen = (as_rsl_rl(obs),) * 2
    if MAJOR == 2:
        first, second = as_rsl_rl(obs)
        second = second["observations"]["teacher" if student else "critic"]
        seen = runner.obs_normalizer(first), runner.privileged_obs_normalizer(second)
    outputs = alg.policy.act_inference(seen[0]), alg.policy.evaluate(seen[1])
    alg.policy.reset(done)
    return outputs


if __name__ == "__main__":
    for each in sys.argv[2:]:
        make(Path(sys.argv[1]), each)
