"""Three iterations on a mesh over all processes; prints every loss exactly.

Arguments: address of the coordinator, number of processes, number of this process.
"""

import sys

import jax
from tiny import make_algorithm, make_env

from strl_jax.algorithms import train_step
from strl_jax.sharding import make_mesh


def main(address: str, processes: int, process: int):
    if processes > 1:
        jax.distributed.initialize(coordinator_address=address, num_processes=processes, process_id=process)
    assert jax.process_count() == processes
    env = make_env("nan", 3)
    algorithm = make_algorithm(
        env=env.env, schedule="adaptive", empirical_normalization=True, normalize_rewards=True, num_mini_batches=2
    )
    mesh = make_mesh()
    states = train_step.init_states(env, algorithm, mesh, jax.random.key(0), num_envs=8)
    step = train_step.make_train_step(env, algorithm, mesh, num_steps=4)
    for iteration in range(3):
        *states, metrics = step(*states, {})
        for name, value in sorted(metrics.update.items()):
            print(iteration, name, float(value).hex(), flush=True)
    print("devices", mesh.size, "processes", jax.process_count(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
