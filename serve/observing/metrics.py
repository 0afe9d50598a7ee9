"""The server's metrics for Prometheus, at /metrics.

The figures of the queue are read when /metrics is requested; only requests that have ended are counted here.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from berth.serve.observing.figures import StageTimes, Work

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters of requests, and the figures of the queue, which `source` returns."""

    def __init__(self, source: Callable[[], Work]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "berth_requests", "Requests by path and status.", ("path", "status"), registry=self._registry
        )
        self._stages = Histogram(
            "berth_stage_seconds",
            "Time of answered requests by stage.",
            ("stage",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._registry.register(_WorkCollector(source))

    def note(self, path: str, status: int, times: StageTimes | None) -> None:
        """Count a request that has ended."""
        self._requests.labels(path, str(status)).inc()
        for stage, taken in times.known().items() if times and status == 200 else ():
            self._stages.labels(stage).observe(taken)

    def text(self) -> bytes:
        """The metrics in Prometheus's text format."""
        return generate_latest(self._registry)


class _WorkCollector(Collector):
    def __init__(self, source: Callable[[], Work]) -> None:
        self._source = source

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        work = self._source()
        yield GaugeMetricFamily("berth_queue_tokens", "Tokens that wait for a worker.", work.tokens)
        yield GaugeMetricFamily(
            "berth_body_bytes", "Bytes of requests that are being received or answered.", work.bodies
        )
        yield GaugeMetricFamily("berth_active_requests", "Requests that are being received or answered.", work.requests)
        yield CounterMetricFamily("berth_batches", "Batches given to workers.", work.batches)
        yield CounterMetricFamily("berth_batch_windows", "Windows in these batches.", work.windows)
        yield CounterMetricFamily("berth_batch_tokens", "Tokens of these windows.", work.window_tokens)
        yield CounterMetricFamily(
            "berth_batch_padded_tokens", "The same, padded to the longest window of each batch.", work.padded_tokens
        )
