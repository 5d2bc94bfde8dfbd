"""Shows the cache's counters where vLLM shows its own."""

import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from vllm_spectool._core.counters import COUNTERS, DRAFT_COUNTERS, GAUGES, PREFIX
from vllm_spectool.plugin.cache import PluginCache


class CacheCollector(Collector):
    """Reads the counts when Prometheus asks for them."""

    def __init__(self, cache: PluginCache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        """Yield each instrument with all its labels' values, those at 0 too."""
        self._cache.store.expire(time.monotonic())
        drafting = self._cache.drafting
        if drafting is not None:
            drafting.refresh()
        for each in (*COUNTERS, *(DRAFT_COUNTERS if drafting else ())):
            labels = [each.label] if each.label else []
            counter = CounterMetricFamily(f"{PREFIX}{each.name}", each.about, labels=labels)
            for value in each.values or ("",):
                counter.add_metric([value] if labels else [], self._cache.tally.of(each, value))
            yield counter
        held = {"held_entries": self._cache.store.entries, "held_bytes": self._cache.store.bytes}
        for each in GAUGES:
            yield GaugeMetricFamily(f"{PREFIX}{each.name}", each.about, held[each.name])


def publish(cache: PluginCache) -> None:
    """Add the counters to the registry that `/metrics` reads."""
    REGISTRY.register(CacheCollector(cache))
