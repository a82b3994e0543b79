"""Settings: defaults, file, environment; an unknown key or a wrong value is one sentence that names it."""

import itertools
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmem.errors import UserError
from pmem.settings import RouteSettings, Settings, load_settings, parse_settings


def load(text: str, tmp_path: Path, **environ: str) -> Settings:
    file = tmp_path / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, environ=environ)


def test_the_shipped_defaults() -> None:
    settings = Settings()
    assert (settings.enabled, settings.cadence_tool_calls, settings.trajectory_steps) == (True, 10, 8)
    assert (settings.reminder_max_chars, settings.max_output_tokens, settings.timeout_ms) == (500, 2000, 60_000)
    assert settings.route is None and settings.chat is None and settings.threshold is None


def test_file_then_environment(tmp_path: Path) -> None:
    text = "cadence_tool_calls: 5\nroute:\n  url: http://127.0.0.1:8000/v1\n  model: small\n"
    settings = load(text, tmp_path, PMEM_CADENCE_TOOL_CALLS="7", PMEM_ROUTE__MODEL="other", PMEM_ENABLED="false", HOME="/x")
    assert settings.cadence_tool_calls == 7 and settings.enabled is False
    assert settings.route is not None and (settings.route.url, settings.route.model) == ("http://127.0.0.1:8000/v1", "other")


def test_environment_alone(tmp_path: Path) -> None:
    environ = {"PMEM_ROUTE__URL": "http://h/v1", "PMEM_ROUTE__MODEL": "m", "PMEM_STATE_DIR": str(tmp_path), "PMEM_CHAT": "null"}
    settings = load_settings(environ={**environ, "PMEM_SETTINGS": ""})
    assert settings.route is not None and settings.state_dir == tmp_path and settings.chat is None


@pytest.mark.parametrize("text", ["2020-99-99", "[" * 3000])
def test_an_environment_value_that_yaml_chokes_on_is_one_sentence(text: str) -> None:
    with pytest.raises(UserError, match="environment variable PMEM_CADENCE_TOOL_CALLS"):
        load_settings(environ={"PMEM_CADENCE_TOOL_CALLS": text, "PMEM_SETTINGS": ""})


def test_plan_notes_want_a_scored_decision(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="leave plan_notes out"):
        load("route: {url: http://h/v1, model: m, plan_notes: true, mode: completion}", tmp_path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cadence: 3", "cadence_tool_calls"),
        ("route: {url: x, model: y, colour: red}", "route.colour"),
        ("cadence_tool_calls: 0", "cadence_tool_calls"),
        ("cadence_tool_calls: many", "cadence_tool_calls"),
        ("route: {model: y}", "route.url"),
        ("route: fast", "route"),
        ("- a\n- b", "mapping"),
        ("a: b: c", "YAML"),
        ("enabled: [", "YAML"),
        ("7: true", "7"),
    ],
)
def test_mistakes_are_one_sentence(text: str, names: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load(text, tmp_path)
    assert names in str(caught.value) and "\n" not in str(caught.value)


def test_a_small_text_of_an_endless_value_is_answered_at_once(tmp_path: Path) -> None:
    levels = [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in itertools.pairwise("abcdefghij")]
    text = "\n".join(["timeout_ms:", "- &a [x, x]", *(f"- {level.partition(': ')[2]}" for level in levels)])
    started = time.process_time()
    with pytest.raises(UserError, match="timeout_ms"):
        load(text, tmp_path)
    with pytest.raises(UserError):
        load("a: &a {b: *a}\nroute: *a\n", tmp_path)
    assert time.process_time() - started < 2


def test_a_text_that_is_no_settings_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("# a comment\n" * 200_000)
    start = time.process_time()
    with pytest.raises(UserError, match=r"s\.yaml: more than 65,536 characters"):
        load_settings(path, environ={})
    assert time.process_time() - start < 0.1


def test_unknown_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="PMEM_CADENCE "):
        load("", tmp_path, PMEM_CADENCE="3")
    with pytest.raises(UserError, match="PMEM_TIMEOUT_MS"):
        load("", tmp_path, PMEM_TIMEOUT_MS="soon")


def test_a_named_file_must_exist_and_be_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_settings(tmp_path / "none.yaml", environ={})
    with pytest.raises(UserError, match="does not exist"):
        load_settings(environ={"PMEM_SETTINGS": str(tmp_path / "none.yaml")})
    (tmp_path / "bin.yaml").write_bytes(b"\xff\xfe\x00enabled")
    with pytest.raises(UserError, match="UTF-8"):
        load_settings(tmp_path / "bin.yaml", environ={})
    with pytest.raises(UserError, match="cannot be read"):
        load_settings(tmp_path, environ={})


ROUTE = "route: {url: http://h/v1, model: m, trajectory_steps: 2}\n"


def test_the_window_the_model_was_trained_on_travels_with_it(tmp_path: Path) -> None:
    assert load(ROUTE, tmp_path).trajectory_steps == 2
    assert load(ROUTE + "trajectory_steps: 2", tmp_path).trajectory_steps == 2
    assert load("route: {url: http://h/v1, model: m}", tmp_path).trajectory_steps == 8
    assert Settings(route=RouteSettings(url="u", model="m", trajectory_steps=3)).trajectory_steps == 3
    with pytest.raises(UserError, match="trajectory_steps is 8, but the model of the route was trained to see 2; leave it out"):
        load(ROUTE + "trajectory_steps: 8", tmp_path)
    with pytest.raises(UserError, match="trajectory_steps is 4"):
        load(ROUTE, tmp_path, PMEM_TRAJECTORY_STEPS="4")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError):
        Settings().enabled = False  # type: ignore[misc]


@given(st.text(max_size=200))
def test_any_text_is_settings_or_one_sentence(text: str) -> None:
    try:
        assert isinstance(parse_settings(text), Settings)
    except UserError as error:
        assert "\n" not in str(error)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=9), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["enabled", "route", "timeout_ms", "state_dir", "x"]), VALUES, max_size=4))
def test_any_mapping_is_settings_or_one_sentence(values: dict[str, object]) -> None:
    import json

    try:
        parse_settings(json.dumps(values))
    except UserError as error:
        assert len(str(error)) < 2000
