"""The base class of every section of a config, and the types that several sections share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A frozen pydantic model that refuses unknown keys, infinity and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


MOST = 2**31 - 2  # counters on devices are int32
Count = Annotated[int, Field(ge=1, le=MOST)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(ge=1e-30, le=1e30)]  # well within the range of float32
LearningRate = Annotated[float, Field(ge=1e-30, le=1e3)]  # training diverges with larger rates
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Text, ...], Field(min_length=1)]
