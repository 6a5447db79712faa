"""``AmpPolicyRunner``: the runner of algorithms with adversarial motion priors."""

from strl_jax.algorithms.appo import AmpFields
from strl_jax.config import ConfigError
from strl_jax.runners.on_policy import OnPolicyRunner


class AmpPolicyRunner(OnPolicyRunner):
    """``OnPolicyRunner`` for APPO and ATPPO. ``OnPolicyRunner`` trains them too; the name is st_rl's.

    Raises:
        ConfigError: as ``OnPolicyRunner``; also if the algorithm has no discriminator.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if not isinstance(self.config.algorithm, AmpFields):
            self.close()
            raise ConfigError(
                f"runner.algorithm_class_name: {self.config.runner.algorithm_class_name} is not allowed for "
                "AmpPolicyRunner; use APPO or ATPPO, or OnPolicyRunner"
            )
