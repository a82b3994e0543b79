"""Our Prometheus metrics, in the same registry as vLLM's, so that `/metrics` shows both. No label ever holds an id or text."""

from prometheus_client import Counter, Gauge, Histogram

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)

REQUESTS = Counter("pmem_route_requests", "Requests that asked for engine work, by how they ended.", ["outcome"])
REFUSALS = Counter("pmem_route_refusals", "Requests refused at once, by reason.", ["reason"])
SECONDS_HELD = Histogram("pmem_route_request_seconds", "Time a request held its slot.", ["kind"], buckets=SECONDS)
SECONDS_REFUSED = Histogram("pmem_route_refusal_seconds", "Time to refuse a request.", buckets=SECONDS)
SECONDS_RELEASE = Histogram(
    "pmem_route_release_seconds", "From an abandoned request to the engine having let go of it.", buckets=SECONDS
)
STEPS = Counter("pmem_route_steps", "Memory steps that got a slot.")
IN_FLIGHT = Gauge("pmem_route_inflight", "Slots held now.", multiprocess_mode="livesum")
PEAK = Gauge("pmem_route_inflight_peak", "Most slots ever held at once.", multiprocess_mode="max")
LIMIT = Gauge("pmem_route_limit", "Slots there are.", multiprocess_mode="livesum")
