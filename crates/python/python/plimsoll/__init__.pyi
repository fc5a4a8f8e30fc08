# SPDX-License-Identifier: Apache-2.0 OR MIT
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict, Union

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

class Trace:
    @property
    def header(self) -> dict[str, Any]: ...
    @property
    def events(self) -> Table: ...

class Replay:
    @property
    def group(self) -> str: ...
    @property
    def holds(self) -> bool: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def figures(self) -> Table: ...
    @property
    def checks(self) -> Table: ...
    @property
    def requests(self) -> Table: ...

class Plan:
    @property
    def verdict(self) -> Literal["met", "met-narrowly", "not-met"]: ...
    @property
    def group(self) -> str: ...
    @property
    def goals(self) -> list[str]: ...
    @property
    def holds(self) -> bool: ...
    @property
    def request_cpus(self) -> float: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def settings(self) -> dict[str, str]: ...
    @property
    def table(self) -> Table: ...

Target = Literal["kubernetes", "kubernetes+agent", "docker", "systemd", "cgroup", "plimsoll"]

def read_trace(path: Path) -> Trace: ...
def replay(
    recordings: Path | Sequence[Path],
    *,
    set: dict[str, Value] | None = None,
    group: str | None = None,
    request: str | None = None,
    seed: int | None = None,
) -> Replay: ...
def plan(
    recordings: Path | Sequence[Path],
    goals: str | Sequence[str],
    *,
    group: str | None = None,
    request: str | None = None,
    target: Target | None = None,
    max_cpus: float | None = None,
    min_throughput: float = 99.0,
    seed: int = 1,
) -> Plan: ...
def simulate(scenario: Path, *, set: dict[str, Value] | None = None, seed: int | None = None) -> Table: ...
def run_point(scenario: Path, set: dict[str, Value] | None = None, seed: int | None = None) -> Row: ...
def sweep(
    points: Iterable[Point],
    map: Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]] = ...,
    *,
    batch: int = 1,
) -> Table: ...
