"""Runners that are made and called as in st_rl."""

from commands import Walk, settings

from strl_jax.runners import OnPolicyRunner


def train_cfg(**runner) -> dict:
    """A config in the style of st_rl: without the environment, which the caller makes."""
    config = settings("unused", eval_interval=2, **runner)
    del config["runner"]["log_root"]
    return config | {"env": {"num_envs": 4}}


def make(log_dir=None, device="cpu", **runner) -> OnPolicyRunner:
    """A runner of ``Walk`` with positional arguments."""
    return OnPolicyRunner(Walk(), train_cfg(**runner), log_dir, device)


def one_line(error: Exception, *parts: str) -> None:
    """The message is one line that contains these parts."""
    text = str(error)
    assert "\n" not in text
    assert all(part in text for part in parts), text
