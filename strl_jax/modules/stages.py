"""Settings of the optional stages of a policy, as frozen, hashable dataclasses."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryStage:
    """Recurrent memories with these settings: one each for the actor, the critic, the adaptor and the estimator.

    An estimator that is ``on_actor_memory`` has none.

    Attributes:
        kind: ``lstm`` or ``gru``.
        hidden_size: size of the hidden state of each layer.
        num_layers: number of recurrent layers.
    """

    kind: str = "lstm"
    hidden_size: int = 256
    num_layers: int = 1


@dataclass(frozen=True)
class EstimatorStage:
    """A network, trained with supervision, that predicts observation components from other components.

    Attributes:
        inputs: components of the actor's group that it reads; their order does not matter.
        targets: components of the critic's group that it predicts.
        hidden_sizes: sizes of the hidden layers; the output layer is linear.
        nonlinearity: activation of the hidden layers.
        replace_prob: probability that the actor reads the estimate instead of the true component.
        on_actor_memory: it reads the output of the actor's memory instead of ``inputs``; the actor then never
            reads the estimate.
    """

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    hidden_sizes: tuple[int, ...]
    nonlinearity: str = "ReLU"
    replace_prob: float = 0.0
    on_actor_memory: bool = False


@dataclass(frozen=True)
class EncoderStage:
    """A network that replaces one observation component by a latent.

    Attributes:
        component: the component that it encodes.
        hidden_sizes: sizes of the hidden layers of the MLP (after the convolutions, if any).
        latent_size: size of the latent.
        linear: the last layer has no activation.
        nonlinearity: activation of all layers (with ``linear``: of all except the last).
        channels, kernel_sizes, strides, paddings, use_maxpool, normlayer: the
            convolutions before the MLP, see ``Conv2dModel``; no channels: no convolutions.
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
