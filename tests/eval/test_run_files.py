"""No stage of evaluation writes over another stage's file of its run, and bad seeds are refused before any work."""

from pathlib import Path

import pytest

from eval.ab import AbConfig
from eval.ab import main as ab
from eval.promote import PromoteConfig
from eval.run_files import RunFiles
from eval.score import main as score
from eval.sweep import main as sweep
from pmem.errors import UserError


@pytest.mark.parametrize("name", ["labels.parquet", "snapshots.parquet", "verdict.json", "rollouts.jsonl", "sft.parquet"])
@pytest.mark.parametrize("stage", ["sweep", "score", "ab"])
def test_out_is_never_another_file_of_the_run(stage: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("precious")
    for file in ("snapshots.parquet", "labels.parquet"):
        if not (tmp_path / file).exists():
            (tmp_path / file).write_text("other")
    common = [f"run={tmp_path}", f"out={tmp_path / name}"]
    calls = {"sweep": (sweep, []), "score": (score, ["arm=rules"]), "ab": (ab, ["arms=[never]"])}
    main, more = calls[stage]
    with pytest.raises(UserError, match=f"which is {name} of this run; name another file to write"):
        main([*common, *more])
    assert (tmp_path / name).read_text() == "precious"


def test_a_stage_may_write_its_own_file(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.threshold.write_text("{}")
    files.check_out(files.threshold, files.threshold)
    files.check_out(tmp_path / "new.json", files.threshold)


@pytest.mark.parametrize("config", [AbConfig, PromoteConfig])
def test_a_negative_seed_is_refused(config: type) -> None:
    with pytest.raises(UserError, match="seed"):
        config(seed=-1)
