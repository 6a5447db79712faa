"""The base class of every section of a config."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen pydantic model that refuses unknown keys, infinity and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
