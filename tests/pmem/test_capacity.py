"""Capacity: evidence in its order, occupancy that counts everybody, slots taken in one step, limits that outlive the process."""

import json
import threading
from pathlib import Path

import pytest

from pmem.capacity import Capacity, Endpoint, ProbeStore, assumed_capacity, endpoint_at, endpoint_key, is_local

LOCAL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://Host:8000/v1/", "http://host:8000/v1"),
        ("https://api.example.com/v1", "https://api.example.com:443/v1"),
        ("http://api.example.com", "http://api.example.com:80"),
        ("localhost:9/x", "http://localhost:9/x"),
        ("http://[::1]:8000/v1", "http://::1:8000/v1"),
    ],
)
def test_endpoint_keys(url: str, key: str) -> None:
    assert endpoint_key(url) == key


@pytest.mark.parametrize(
    "url", [LOCAL, "http://localhost:1", "http://192.168.1.20:4000", "http://[::1]:1", "http://gpu-box:1", "http://m.local"]
)
def test_local_addresses(url: str) -> None:
    assert is_local(url) and not is_local("https://api.example.com/v1") and not is_local("http://8.8.8.8")


@pytest.mark.parametrize(
    ("url", "kind", "limit"),
    [
        (LOCAL, "auto", 1),
        (LOCAL, "llama_cpp", 1),
        (LOCAL, "ollama", 1),
        (LOCAL, "vllm", None),
        (LOCAL, "gateway", None),
        ("https://api.example.com/v1", "openai", None),
        ("https://api.example.com/v1", "auto", None),
    ],
)
def test_what_is_assumed_without_evidence(url: str, kind: str, limit: int | None) -> None:
    assert assumed_capacity(url, kind).limit == limit


def test_evidence_stands_in_its_order(tmp_path: Path) -> None:
    store = ProbeStore(tmp_path / "slots.json", clock=lambda: 1000.0)
    endpoint = Endpoint(LOCAL, kind="llama_cpp", store=store)
    assert endpoint.capacity == Capacity(1, "assumed")
    store.write(endpoint.key, "llama_cpp", 3)
    assert endpoint.capacity == Capacity(3, "persisted")
    endpoint.learn(2)
    assert endpoint.capacity == Capacity(2, "probed")
    endpoint.configure(4)
    assert endpoint.capacity == Capacity(4, "configured")
    endpoint.configure(3)
    endpoint.configure(None)
    assert endpoint.capacity == Capacity(3, "configured"), "of two settings the smaller holds"


def test_a_persisted_probe_is_good_for_a_day_and_never_from_the_future(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = ProbeStore(tmp_path / "slots.json", clock=lambda: now[0])
    store.write("k", "vllm", 4)
    assert store.read("k", "vllm") == store.read("k", "auto") == 4
    assert store.read("k", "llama_cpp") is None and store.read("other", "vllm") is None
    now[0] += 24 * 3600
    assert store.read("k", "vllm") == 4
    now[0] += 1
    assert store.read("k", "vllm") is None
    now[0] = 999_999.0
    assert store.read("k", "vllm") is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"k": 3}', '{"k": {"at": 1, "kind": "vllm", "limit": true}}', '{"k":{"at":1,"limit":2}}']
)
def test_a_damaged_file_is_no_evidence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "slots.json"
    path.write_text(text)
    store = ProbeStore(path, clock=lambda: 2.0)
    assert store.read("k", "vllm") is None
    store.write("k", "vllm", 2)
    assert store.read("k", "vllm") == 2


def test_only_the_newest_endpoints_are_kept(tmp_path: Path) -> None:
    now = [0.0]
    store = ProbeStore(tmp_path / "slots.json", clock=lambda: now[0])
    for number in range(70):
        now[0] += 1
        store.write(f"k{number}", "vllm", 1)
    assert len(json.loads((tmp_path / "slots.json").read_text())) == 64 and store.read("k5", "vllm") is None


def test_an_unwritable_folder_changes_nothing() -> None:
    endpoint = Endpoint(LOCAL, store=ProbeStore(Path("/proc/none/slots.json")))
    endpoint.learn(3, "vllm")
    assert endpoint.capacity == Capacity(3, "probed")


def test_the_hosts_own_traffic_counts_and_is_never_refused() -> None:
    endpoint = Endpoint(LOCAL)
    with endpoint.hold():
        assert endpoint.busy and endpoint.take() is None
        with endpoint.hold():
            assert endpoint.occupied == 2
    slot = endpoint.take()
    assert slot is not None and endpoint.take() is None
    slot.release()
    slot.release()
    assert endpoint.occupied == 0 and not endpoint.busy


def test_a_hold_ends_when_the_hosts_request_fails() -> None:
    endpoint = Endpoint(LOCAL)
    with pytest.raises(RuntimeError), endpoint.hold():
        raise RuntimeError
    assert endpoint.occupied == 0


def test_no_bound_refuses_nothing() -> None:
    endpoint = Endpoint("https://api.example.com/v1")
    assert all(endpoint.take() for _ in range(50)) and not endpoint.busy and endpoint.occupied == 50


def test_sixteen_threads_never_take_more_than_the_limit() -> None:
    endpoint = Endpoint(LOCAL)
    endpoint.configure(3)
    most = [0]
    refused = [0]

    def grab() -> None:
        for _ in range(300):
            slot = endpoint.take()
            if slot is None:
                refused[0] += 1
                continue
            most[0] = max(most[0], endpoint.occupied)
            slot.release()

    threads = [threading.Thread(target=grab) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 3 and endpoint.occupied == 0


def test_sessions_and_host_count_on_one_endpoint(tmp_path: Path) -> None:
    one = endpoint_at("http://127.0.0.1:59999/v1/", kind="llama_cpp")
    two = endpoint_at("http://127.0.0.1:59999/v1", store=ProbeStore(tmp_path / "s.json"))
    assert one is two and one.kind == "llama_cpp"
    with one.hold():
        assert two.take() is None
