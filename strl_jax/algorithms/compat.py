"""Differences between this library and st_rl that a config can undo, one field for each."""

from strl_jax.section import Fraction, Section


class Compat(Section):
    """The defaults are this library's behaviour; ``Compat.st_rl()`` is the torch library's.

    Attributes:
        bootstrap_current_value: at a time-out gamma V(s_t) is added to the reward, not
            gamma V(terminal observation).
        reuse_permutation: all epochs of an update use one permutation, and samples
            that do not fill a minibatch are dropped.
        kl_log_eps: added inside the logarithm of the KL that the learning rate follows.
        linear_std: the free parameter is the standard deviation itself, and
            ``clip_min_std`` applies once after an update.
        grad_norm_eps: gradients are scaled by min(1, max_grad_norm / (norm + this)).
        normalize_while_collecting: observation statistics are updated after every
            environment step, not once after the update.
        contiguous_envs: recurrent minibatches are contiguous slices of environments,
            the same in every epoch, and environments that do not fill one are dropped.
        advance_critic_memory: the critic's recurrent network processes the observation after the
            last step twice, at the end of a rollout and at the start of the next.
        redraw_replacement: the steps at which the actor sees an estimate are drawn again in every
            forward pass; they are not those of the collection.
        zero_mutex_buffer: the smoothing buffer of a mutex policy starts with zeros and is never
            cleared; if no obstacle is flagged, the sub-policies see the flag of id 0 set; obstacle ids
            without a sub-policy are allowed and give action 0.
        sample_log_prob: where a teacher acts, the stored log-probability is that of the
            policy's sample, not of the executed action.
        executed_labels: with a discriminator, the action labels are the executed actions,
            not the teacher's.
        discriminator_with_policy: the discriminator shares the policy's optimiser and
            clip, and ``discriminator_loss_coef`` only turns its losses on or off.
        whole_discriminator_batch: the discriminator learns from every sample of a minibatch.
        separate_amp_normalizers: the policy's motion and the reference motion have separate
            normalisation statistics, which are updated after every step.
        amp_after_reset: at the end of an episode, the second observation of the pair that the
            discriminator sees is the first of the next episode.
        mimic_in_loss: the mimic loss, which has no gradient, is part of the total loss.
        looped_returns: with a buffer of several rollouts, returns are computed again over the whole
            ring buffer in storage order, which is not the order of time after the buffer has wrapped.
        tan_statistic: ``l1_before_tanh`` uses the tangent instead of the inverse of tanh.
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
        """All fields as in st_rl."""
        return cls(**(dict.fromkeys(cls.model_fields, True) | {"kl_log_eps": 1e-5, "grad_norm_eps": 1e-6}))
