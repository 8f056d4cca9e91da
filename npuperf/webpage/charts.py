"""What a page draws of a document: a list of charts, each made by a function where its data is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from npuperf.documents.analysis import Result
from npuperf.documents.document import Document
from npuperf.documents.tuning import ResultChanges, Tuning
from npuperf.webpage.chart import Chart
from npuperf.webpage.comparison_charts import differences, steps_apart, waterfall
from npuperf.webpage.cores_chart import cores_over_time
from npuperf.webpage.device_charts import (
    blame_icicle,
    elasticity,
    operators,
    partition,
    steps,
    typical_step,
    what_if,
)  # fmt: skip
from npuperf.webpage.job_charts import groups, roots, stages
from npuperf.webpage.job_matrices import links, ranks_by_step, who_waits
from npuperf.webpage.tuning_charts import explained, results, savings, tuned, verified
from npuperf.webpage.whereabouts import Whereabouts

if TYPE_CHECKING:
    from npuperf.documents.picture import Picture

#: In the order of the page. A chart returns None where its data is not there.
RESULT_CHARTS: Final[tuple[Callable[[Result, Whereabouts], Chart | None], ...]] = (
    waterfall,
    steps_apart,
    differences,
    roots,
    ranks_by_step,
    partition,
    steps,
    typical_step,
    elasticity,
    what_if,
    blame_icicle,
    operators,
    cores_over_time,
    stages,
    groups,
    links,
    who_waits,
)
TUNING_CHARTS: Final[tuple[Callable[[Tuning], Chart | None], ...]] = (verified, explained, tuned, savings)


def charts_of(document: Document, pictures: Sequence[Picture] = ()) -> list[Chart]:
    """Return the charts of a document, in the current language; ``pictures``: the timelines that they lead to."""
    devices = document.devices if isinstance(document, Result) else ()
    return list(_charts(document, Whereabouts(pictures, devices)))


def _charts(document: Document, where: Whereabouts) -> Iterator[Chart]:
    found: list[Chart | None] = []
    if isinstance(document, Result):
        found = [make(document, where) for make in RESULT_CHARTS]
    elif isinstance(document, Tuning):
        found = [make(document) for make in TUNING_CHARTS]
    elif isinstance(document, ResultChanges):
        found = [results(document)]
    yield from (chart for chart in found if chart is not None)
