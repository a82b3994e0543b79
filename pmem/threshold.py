"""`threshold.json` (`pmem.threshold/1`): turns the raw probability of speaking into speak or silence (docs/design/calibration.md).

    speaks(p)  <=>  calibrated(p) >= threshold          with x = log_odds(p):
    none        p
    sigmoid     sigma(a * x + b)          params = [a, b]
    temperature sigma(x / T)              params = [T]
    isotonic    linear between knots      params = [p_1 … p_n, q_1 … q_n], p ascending, clamped outside

Plain numbers, so that the core needs no scikit-learn. A file made for another model or prompt is refused.
"""

import bisect
import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pmem.atomic import write_text
from pmem.canonical import content_id
from pmem.errors import UserError

PROB_CLIP = 1e-7
"""Probabilities are held this far from 0 and 1 before their log-odds are taken."""

Prob = Annotated[float, Field(ge=0, le=1)]


def log_odds(prob: float) -> float:
    """ln(p / (1 - p)) of a clipped probability: the axis that sigmoid and temperature calibrators are fitted on."""
    clipped = min(max(prob, PROB_CLIP), 1 - PROB_CLIP)
    return math.log(clipped / (1 - clipped))


def sigma(value: float) -> float:
    """Logistic function that never overflows."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))


class Calibrator(BaseModel):
    """One monotone map of probabilities; see the module docstring for `params`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["sigmoid", "temperature", "isotonic", "none"] = "none"
    params: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> "Calibrator":
        wanted = {"sigmoid": 2, "temperature": 1, "none": 0}.get(self.kind)
        if wanted is not None and len(self.params) != wanted:
            raise ValueError(f"a {self.kind} calibrator has {wanted} parameters, not {len(self.params)}")
        if self.kind == "temperature" and self.params[0] <= 0:
            raise ValueError(f"a temperature must be positive, not {self.params[0]}")
        if self.kind == "isotonic":
            self._check_knots()
        return self

    def apply(self, prob: float) -> float:
        """Calibrated probability of one raw probability in [0, 1]."""
        if self.kind == "sigmoid":
            return sigma(self.params[0] * log_odds(prob) + self.params[1])
        if self.kind == "temperature":
            return sigma(log_odds(prob) / self.params[0])
        return self._interpolated(prob) if self.kind == "isotonic" else prob

    def _check_knots(self) -> None:
        half = len(self.params) // 2
        raw, calibrated = self.params[:half], self.params[half:]
        if half == 0 or len(self.params) % 2:
            raise ValueError("an isotonic calibrator has as many raw as calibrated knots, at least one of each")
        if list(raw) != sorted(raw) or list(calibrated) != sorted(calibrated):
            raise ValueError("the knots of an isotonic calibrator must ascend")

    def _interpolated(self, prob: float) -> float:
        half = len(self.params) // 2
        raw, calibrated = self.params[:half], self.params[half:]
        right = bisect.bisect_right(raw, prob)
        if right == 0:
            return calibrated[0]
        if right == half:
            return calibrated[-1]
        share = (prob - raw[right - 1]) / (raw[right] - raw[right - 1])
        return calibrated[right - 1] + share * (calibrated[right] - calibrated[right - 1])


class Threshold(BaseModel):
    """When a calibrated probability is high enough to speak, for which model and prompt, and what was certified about it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    format: Literal["pmem.threshold/1"] = "pmem.threshold/1"
    threshold: float = Field(ge=0)
    """Speak at or above; a value above 1 never speaks."""
    certified: bool
    calibrator: Calibrator = Calibrator()
    alpha: Prob | None = None
    delta: Prob | None = None
    cost_false: float | None = None
    cost_missed: float | None = None
    num_units: int | None = None
    unit: str | None = None
    loss: str | None = None
    split_hash: str | None = None
    families: tuple[str, ...] = ()
    decision_mode: Literal["scored", "completion"] = "scored"
    model_hash: str
    prompt_version: str
    created: str

    def calibrated(self, prob_raw: float) -> float:
        """Calibrated probability of a raw one."""
        return self.calibrator.apply(prob_raw)

    def speaks(self, prob_raw: float) -> bool:
        """Whether the calibrated probability reaches the threshold."""
        return self.calibrated(prob_raw) >= self.threshold

    @property
    def threshold_id(self) -> str:
        """Content id named in telemetry rows; the time of writing is not part of it."""
        return content_id(self.model_dump(mode="json", exclude={"created"}))

    @classmethod
    def plain(cls, threshold: float, *, model_hash: str = "", prompt_version: str = "") -> "Threshold":
        """An uncertified threshold on the raw probability: sweeps, tests, the writing floor of a scoring run."""
        return cls(threshold=threshold, certified=False, model_hash=model_hash, prompt_version=prompt_version, created="")


def read_threshold(
    path: Path, *, model_hash: str | None, prompt_version: str, require_certified: bool = False, verify_later: bool = False
) -> Threshold:
    """Read a threshold file for this model and prompt. Raises UserError for any other, and on request for an uncertified one.

    `verify_later`: the hash is not known yet, the caller compares it when the server has stated it.
    """
    try:
        threshold = Threshold.model_validate_json(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"threshold file {path} does not exist; `python -m eval.sweep` writes it") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; write it again with `python -m eval.sweep`") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}: key {key!r}: {first['msg']}; expected pmem.threshold/1") from None
    if threshold.model_hash != model_hash and not verify_later:
        raise UserError(
            f"{path} was made for model {threshold.model_hash[:16]}, not {(model_hash or 'unknown')[:16]}; "
            "run `python -m eval.sweep` for this model"
        )
    if threshold.prompt_version != prompt_version:
        raise UserError(
            f"{path} was made for prompt version {threshold.prompt_version}, not {prompt_version}; score and sweep again"
        )
    if require_certified and not threshold.certified:
        raise UserError(f"{path} holds no certified threshold; stay with the rules tier, or collect more certify episodes")
    return threshold


def write_threshold(path: Path, threshold: Threshold) -> None:
    """Write a threshold file."""
    write_text(path, threshold.model_dump_json(indent=2) + "\n")
