# SPDX-License-Identifier: Apache-2.0 OR MIT
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, TypedDict, Union

Value = Union[bool, int, float, str]
Row = dict[str, Value]
Path = Union[str, PathLike[str]]

class _Needed(TypedDict):
    scenario: Path

class Point(_Needed, total=False):
    set: Mapping[str, Value]
    seed: int

__version__: str

class InputError(ValueError):
    problems: list[tuple[str, str, str]]

class RunError(RuntimeError): ...
class PanicError(RuntimeError): ...

class Table:
    @staticmethod
    def from_rows(rows: list[Row], first: list[str]) -> Table: ...
    @staticmethod
    def from_parquet(bytes: bytes) -> Table: ...
    def parquet(self) -> bytes: ...
    @property
    def column_names(self) -> list[str]: ...
    def rows(self) -> list[Row]: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

def simulate(scenario: Path, *, set: dict[str, Value] | None = None, seed: int | None = None) -> Table: ...
def run_point(scenario: Path, set: dict[str, Value] | None = None, seed: int | None = None) -> Row: ...
def sweep(
    points: Iterable[Point],
    map: Callable[[Callable[[Point], Row], list[Point]], Iterable[Row]] = ...,
) -> Table: ...
