"""Overviews in the text format of OpenMetrics, for Prometheus and whatever reads that. Pure; needs the extra
``metrics``, or ``ui``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from spark_ckpt.monitoring._measures import Metric, Sample, Summary, measures
from spark_ckpt.monitoring.overview import Overview

CONTENT_TYPE = CONTENT_TYPE_LATEST
_UNITS = {"s": "seconds", "By": "bytes"}


def prometheus_name(metric: Metric) -> str:
    """``spark_ckpt.checkpoint.age`` in seconds is ``spark_ckpt_checkpoint_age_seconds``. Of a counter without
    ``_total``, which its samples have."""
    unit = _UNITS.get(metric.unit)
    return "_".join([*metric.name.split("."), *([unit] if unit else [])])


def exposition(overviews: Iterable[Overview]) -> str:
    """One text of all ``overviews``; what is not known of a job is left out, not zero."""
    return text_of(sample for overview in overviews for sample in measures(overview))


def text_of(samples: Iterable[Sample]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(list(samples)))
    return generate_latest(registry).decode()  # type: ignore[no-untyped-call]


class _Samples(Collector):
    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        found: dict[Metric, Family] = {}
        for sample in self._samples:
            _add(found.setdefault(sample.metric, _family(sample.metric)), sample)
        yield from found.values()


def _family(metric: Metric) -> Family:
    return Family(prometheus_name(metric), metric.help, metric.kind, _UNITS.get(metric.unit, ""))


def _add(family: Family, sample: Sample) -> None:
    labels, value = dict(sample.labels), sample.value
    if isinstance(value, Summary):
        for quantile, at in value.quantiles.items():
            family.add_sample(family.name, {**labels, "quantile": quantile}, at)
        family.add_sample(f"{family.name}_count", labels, value.count)
        family.add_sample(f"{family.name}_sum", labels, value.sum)
    else:
        family.add_sample(f"{family.name}_total" if family.type == "counter" else family.name, labels, value)
