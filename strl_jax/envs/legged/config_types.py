"""Types of the numbers in a legged environment's config."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

Range = tuple[float, float]


def _in_order(limits: Range) -> Range:
    if limits[0] > limits[1]:
        raise ValueError("the first number must be at most the second")
    return limits


def _apart(limits: Range) -> Range:
    if limits[1] - limits[0] < 0.001:
        raise ValueError("the second number must be at least 0.001 above the first")
    return limits


def ordered(number: Any) -> Any:
    """The type of a pair of numbers, of which the second is not below the first."""
    return Annotated[tuple[number, number], AfterValidator(_in_order)]


# The bounds are far from any real robot, and within them all float32 results are finite.
Speed = Annotated[float, Field(ge=-100, le=100)]  # m/s or rad/s
Angle = Annotated[float, Field(ge=-100, le=100)]  # rad
Place = Annotated[float, Field(ge=-100, le=100)]  # m
Depth = Annotated[float, Field(ge=0, le=1000)]  # m
Extent = Annotated[float, Field(gt=0, le=100)]  # m
Length = Annotated[float, Field(gt=0, le=1000)]  # m
Distance = Annotated[float, Field(ge=0, le=1000)]  # m
Seconds = Annotated[float, Field(gt=0, le=1e6)]
Gain = Annotated[float, Field(ge=0, le=1e6)]
Limit = Annotated[float, Field(gt=0, le=1e6)]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]

Speeds = ordered(Speed)
Headings = ordered(Annotated[float, Field(ge=-6.3, le=6.3)])  # rad, a whole turn
Places = ordered(Place)
Masses = ordered(Annotated[float, Field(ge=-1000, le=1000)])  # kg
Delays = ordered(Annotated[float, Field(ge=0, le=20)])  # s, the longest control step
Factors = ordered(Annotated[float, Field(ge=0.001, le=1000)])
Frictions = ordered(Annotated[float, Field(ge=0.01, le=100)])  # at 0.001 the solver gives NaN
Extents = ordered(Extent)
Slopes = ordered(Annotated[float, Field(gt=0, le=10)])  # height over way
Depths = Annotated[tuple[Depth, Depth], AfterValidator(_apart)]
Points = Annotated[tuple[Place, ...], Field(min_length=1)]

RobotParts = Annotated[tuple[str, ...], Field(min_length=1)]  # names of joints, geoms or bodies
Feet = Annotated[tuple[str | RobotParts, ...], Field(min_length=1)]  # a name, or the names of a foot's geoms
Part = Annotated[str, Field(min_length=1)]  # of a joint's name
PerJoint = Gain | dict[Part, Gain]  # for all joints, or by a part of their names
