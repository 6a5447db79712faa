"""The differences from st_rl that a config can take back, one field a row."""

from strl_jax.section import Fraction, Section


class Compat(Section):
    """Defaults are this library's; ``Compat.st_rl()`` has the torch library's.

    Attributes:
        bootstrap_current_value: a time-out is credited with gamma V(s_t), not with
            gamma V(terminal observation).
        reuse_permutation: one permutation for all epochs of an update, and samples
            that do not fill a minibatch are dropped.
        kl_log_eps: added inside the logarithm of the KL that the learning rate follows.
        linear_std: the free parameter is the standard deviation itself, and
            ``clip_min_std`` applies once after an update.
        grad_norm_eps: gradients are scaled by max_grad_norm / (norm + this).
        normalize_while_collecting: observation statistics move with every
            environment step, not once after the update.
        contiguous_envs: recurrent minibatches are contiguous slices of environments,
            the same in every epoch, and environments that do not fill one are dropped.
        advance_critic_memory: the critic's memory takes in the observation after the
            last step twice, at the end of a rollout and at the begin of the next.
        redraw_replacement: which steps see an estimate is drawn anew at every
            forward pass, not kept from collecting.
        zero_mutex_buffer: a mutex policy's smoothing buffer starts at zeros and is never
            cleared, and where no obstacle is seen the sub-policies see the first flag.
        sample_log_prob: where a teacher acts, the stored log-probability is that of the
            action that the policy had drawn, not of the one that was taken.
        executed_labels: with a discriminator the action labels are the executed actions,
            not a teacher's.
        discriminator_with_policy: the discriminator shares the policy's optimiser and
            clip, and ``discriminator_loss_coef`` only switches its losses on.
        whole_discriminator_batch: the discriminator learns from every sample of a minibatch.
        separate_amp_normalizers: the policy's motion and the reference motion are
            normalised each with statistics of its own, which move with every step.
        amp_after_reset: at the end of an episode the pair of observations that the
            discriminator sees reaches into the next one.
        mimic_in_loss: the mimic loss, which has no gradient, is part of the total.
        looped_returns: with a buffer of several rollouts, returns are computed anew over
            the whole of it, in the order in which it was written.
        tan_statistic: ``l1_before_tanh`` takes the tangent where its inverse is meant.
    """

    bootstrap_current_value: bool = False
    reuse_permutation: bool = False
    kl_log_eps: Fraction = 0.0
    linear_std: bool = False
    grad_norm_eps: Fraction = 0.0
    normalize_while_collecting: bool = False
    contiguous_envs: bool = False
    advance_critic_memory: bool = False
    redraw_replacement: bool = False
    zero_mutex_buffer: bool = False
    sample_log_prob: bool = False
    executed_labels: bool = False
    discriminator_with_policy: bool = False
    whole_discriminator_batch: bool = False
    separate_amp_normalizers: bool = False
    amp_after_reset: bool = False
    mimic_in_loss: bool = False
    looped_returns: bool = False
    tan_statistic: bool = False

    @classmethod
    def st_rl(cls) -> "Compat":
        """Every row as st_rl has it."""
        return cls(
            bootstrap_current_value=True,
            reuse_permutation=True,
            kl_log_eps=1e-5,
            linear_std=True,
            grad_norm_eps=1e-6,
            normalize_while_collecting=True,
            contiguous_envs=True,
            advance_critic_memory=True,
            redraw_replacement=True,
            zero_mutex_buffer=True,
            sample_log_prob=True,
            executed_labels=True,
            discriminator_with_policy=True,
            whole_discriminator_batch=True,
            separate_amp_normalizers=True,
            amp_after_reset=True,
            mimic_in_loss=True,
            looped_returns=True,
            tan_statistic=True,
        )
