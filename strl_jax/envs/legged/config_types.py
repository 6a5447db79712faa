"""Types of the numbers in a legged environment's config."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _in_order(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] > limits[1]:
        raise ValueError("the first number must not be above the second")
    return limits


def _factors(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] <= 0:
        raise ValueError("both numbers must be above 0")
    return limits


def _solvable(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] < 0.01 or limits[1] > 100:  # at 0.001 the solver gives NaN
        raise ValueError("both numbers must be at least 0.01 and at most 100")
    return limits


def _depths(limits: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= limits[0] < limits[1]:
        raise ValueError("the first number must be at least 0 and below the second")
    return limits


Range = Annotated[tuple[float, float], AfterValidator(_in_order)]
Depths = Annotated[tuple[float, float], AfterValidator(_depths)]
Factors = Annotated[Range, AfterValidator(_factors)]
Frictions = Annotated[Range, AfterValidator(_solvable)]
Points = Annotated[tuple[float, ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0, le=1e6)]
Gain = Annotated[float, Field(ge=0, le=1e6)]
Limit = Annotated[float, Field(gt=0, le=1e6)]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Part = Annotated[str, Field(min_length=1)]  # of a joint's name
PerJoint = Gain | dict[Part, Gain]  # for all joints, or by a part of their names


class Section(BaseModel):
    """A section: frozen, with no keys but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
