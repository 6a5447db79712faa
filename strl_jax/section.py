"""The base class of every section of a config, and the types that several sections share."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """A frozen pydantic model that refuses unknown keys, infinity and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Arguments(Section):
    """The arguments of a torch class that another key of the config names. Its errors list the arguments."""

    @model_validator(mode="before")
    @classmethod
    def _known_and_complete(cls, arguments: Any) -> Any:
        takes = f"{cls.__name__} takes {', '.join(cls.model_fields) or 'none'}"
        for key in arguments:
            if key not in cls.model_fields:
                raise ValueError(f"{key}: unknown key; {takes}")
        for key, field in cls.model_fields.items():
            if field.is_required() and key not in arguments:
                raise ValueError(f"{key}: it is missing; {takes}")
        return arguments


MOST = 2**31 - 2  # counters on devices are int32
Count = Annotated[int, Field(ge=1, le=MOST)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(ge=1e-30, le=1e30)]  # well within the range of float32
LearningRate = Annotated[float, Field(ge=1e-30, le=1e3)]  # training diverges with larger rates
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Text, ...], Field(min_length=1)]


def _storable(value: Any) -> Any:
    if not _is_storable(value):
        allowed = "numbers, strings, true, false, null, lists, and mappings with strings as keys"
        raise ValueError(f"it must consist of {allowed}")
    return value


def _is_storable(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_storable(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_storable, value))
    return value is None or isinstance(value, bool | int | float | str)


Keywords = Annotated[dict[str, Any], AfterValidator(_storable)]  # any names and values that YAML and JSON can hold
