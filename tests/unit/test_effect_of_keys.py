"""Every key has an effect: another value changes the lowered program, the data or the initial states, or is refused."""

import effects_bases
import pytest
from effects import ONE, Run, changed, lines
from effects_bases import BASES
from effects_keys import ARGUMENTS, CASES, ELSEWHERE, Case, keys

from strl_jax.runners.on_policy import OnPolicyRunner


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    effects_bases.write_files(path)
    return path


@pytest.fixture(scope="module")
def bases(folder):
    """Name -> run with the base config; computed once."""
    runs: dict[str, Run] = {}

    def base(name: str) -> Run:
        if name not in runs:
            runs[name] = Run(effects_bases.config(name, folder))
        return runs[name]

    return base


def test_every_key_has_a_case():
    missing, stale = keys() - {*CASES, *ELSEWHERE}, {*CASES, *ELSEWHERE} - keys()
    assert not missing, f"give tests/effects_keys.py a config in which these keys have an effect: {sorted(missing)}"
    assert not stale, f"tests/effects_keys.py has keys that no config has: {sorted(stale)}"


def by_base(cases: dict[str, Case]) -> list[str]:
    """The keys, those with the same base together: a process that gets them traces the base once."""
    return sorted(cases, key=lambda key: cases[key].base)


@pytest.mark.parametrize("key", by_base(CASES))
def test_another_value_has_an_effect(key, bases, folder):
    check(key, CASES[key], bases, folder)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_another_argument_has_an_effect(name, bases, folder):
    check(*ARGUMENTS[name], bases, folder)


def check(key: str, case: Case, bases, folder) -> None:
    """Fails if the case's value changes nothing, or is refused and need not be."""
    data = effects_bases.placed(changed(BASES[case.base], key, case.value), folder)
    base, other = bases(case.base), Run(data)
    assert base.error is None
    assert other.error is None or (case.refused and other.error.startswith(case.refused)), other.error
    assert other.config is None or not [line for line in lines(data) if line.startswith((f"{key}:", f"{key}."))]
    assert base.differs(other), f"{key}: {case.value} changes nothing in the config {case.base!r}"


@pytest.mark.parametrize("name", BASES)
def test_base_configs_have_no_key_without_effect(name, folder):
    assert lines(effects_bases.config(name, folder)) == []


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "ppo")) for name in BASES])
def test_the_same_config_gives_the_same_programs(name, bases, folder):
    assert bases(name).differs(Run(effects_bases.config(name, folder))) is None


def test_seed(folder):
    """Another seed gives other initial weights."""
    weights = []
    for seed in (1, 2):
        runner = OnPolicyRunner(None, effects_bases.config("plain", folder) | {"seed": seed}, None, mesh=ONE)
        train, _ = runner.fresh_states(random_lengths=False)
        weights.append(train.params["policy"]["params"]["actor"]["layer_0"]["kernel"])
        runner.close()
    assert (weights[0] != weights[1]).any()
