"""What the optional stages of a policy are made of, as frozen, hashable descriptions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryStage:
    """Separate recurrent memories of the same kind for actor, critic, estimator and adaptor.

    Attributes:
        kind: ``lstm`` or ``gru``.
        hidden_size, num_layers: size of the memory.
    """

    kind: str = "lstm"
    hidden_size: int = 256
    num_layers: int = 1


@dataclass(frozen=True)
class EstimatorStage:
    """A supervised network that predicts observation components from others.

    Attributes:
        inputs: components of the actor's group that it reads (in the group's order).
        targets: components that it predicts, of the critic's group.
        hidden_sizes, nonlinearity: its hidden layers; the output is linear.
        replace_prob: probability with which the actor sees the estimate, not the truth.
        on_actor_memory: it reads the output of the actor's memory, not ``inputs``.
    """

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    hidden_sizes: tuple[int, ...]
    nonlinearity: str = "ReLU"
    replace_prob: float = 0.0
    on_actor_memory: bool = False


@dataclass(frozen=True)
class EncoderStage:
    """A network that replaces one observation component with a latent.

    Attributes:
        component: what it encodes.
        hidden_sizes: hidden layers of the network or of the convolution's head.
        latent_size: size of the latent.
        linear: the last layer has no activation.
        nonlinearity: activation of all other layers.
        channels, kernel_sizes, strides, paddings, use_maxpool, normlayer: of the
            convolutions before the head; no channels means no convolutions.
    """

    component: str
    hidden_sizes: tuple[int, ...]
    latent_size: int
    linear: bool = False
    nonlinearity: str = "ReLU"
    channels: tuple[int, ...] = ()
    kernel_sizes: tuple = ()
    strides: tuple = ()
    paddings: tuple | None = None
    use_maxpool: bool = False
    normlayer: str | None = None
