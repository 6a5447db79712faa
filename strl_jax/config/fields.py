"""Types that the sections of a config share."""

from typing import Annotated

from pydantic import AfterValidator, Field

from strl_jax.config.errors import hint
from strl_jax.modules.mlp import ACTIVATIONS


def _known_activation(name: str) -> str:
    if name.lower() not in ACTIVATIONS:
        raise ValueError(f"it must be one of {', '.join(ACTIVATIONS)}{hint(name, ACTIVATIONS)}")
    return name


MOST = 2**31 - 2  # counters on devices are int32
Count = Annotated[int, Field(ge=1, le=MOST)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Text, ...], Field(min_length=1)]
Activation = Annotated[str, AfterValidator(_known_activation), Field(json_schema_extra={"enum": list(ACTIVATIONS)})]
