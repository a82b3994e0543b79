# pmem: `make quickstart` goes from rollouts to a verdict; `make test` passes the tests. Both set up all they need in .venv/.
#
#   make quickstart                        simulated rollouts, SmolLM2-135M, in-process scoring: about 30 minutes on 2 cores
#   make quickstart ROLLOUTS=path          your own rollouts (any imported format) join the run
#   make quickstart MODEL=hub/id           another base model (hub id or local folder)
#   make quickstart SERVE=vllm             serve through vLLM and score over HTTP
#   make quickstart CONFIGS=my/configs     your own configs; what lacks there is taken from configs/
#   make quickstart CONFIGS=configs/cpu-full RUN=runs/cpu-full    twins of 1,400 tasks, 33 minutes of SFT
#   make test | make slow | make lint      fast tests, slow tests (with SERVE=vllm also those of a real vLLM), linters
#
# Rules are the files of a run: a stopped run goes on where it stood, a changed input rebuilds what depends on it.

PYTHON   ?= python3
RUN      ?= runs/quickstart
MODEL    ?=
ROLLOUTS ?=
SERVE    ?= embedded
SEED     ?= 17
SAMPLED  ?= 300
CONFIGS  ?= configs

VENV := .venv
PY   := $(VENV)/bin/python
D    := $(RUN)/decisions
$(if $(wildcard $(CONFIGS)/.),,$(error CONFIGS is '$(CONFIGS)', which is no folder))
config = $(firstword $(wildcard $(CONFIGS)/$(1)) configs/$(1))

.DELETE_ON_ERROR:
.PHONY: quickstart first test slow lint clean

# ---- set-up ------------------------------------------------------------------------------------------------------------
ifeq ($(SERVE),vllm)
SETUP := $(VENV)/.installed-vllm
else ifeq ($(SERVE),embedded)
SETUP := $(VENV)/.installed
else
$(error SERVE is '$(SERVE)'; use SERVE=embedded or SERVE=vllm)
endif

SERVE_EXTRA := $(shell command -v nvidia-smi >/dev/null 2>&1 && echo serve || echo serve-cpu)
# a torch build that torchvision does not fit breaks the import of transformers; text models need none of the three
FIT := $(PY) -c "import torchvision" 2>/dev/null || $(PY) -m pip uninstall -q -y torchvision torchaudio torchcodec 2>/dev/null || true

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; say make PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --upgrade pip

$(VENV)/.installed: pyproject.toml | $(PY)
	$(PY) -m pip install -q -e ".[train,eval]"
	@$(FIT)
	@touch $@

$(VENV)/.installed-vllm: pyproject.toml | $(PY)
	$(PY) -m pip install -q -e ".[train,eval,$(SERVE_EXTRA)]"
	@$(FIT)
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: pyproject.toml | $(PY)
	$(PY) -m pip install -q -e ".[train,eval,dev]"
	@$(FIT)
	@touch $@ $(VENV)/.installed

# ---- tests -------------------------------------------------------------------------------------------------------------
test: $(VENV)/.installed-dev
	$(PY) -m pytest -m "not slow"

slow: $(VENV)/.installed-dev $(SETUP)
	$(PY) -m pytest -m slow $(SLOW)

lint: $(VENV)/.installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

clean:
	rm -rf $(RUN)

# ---- the run -----------------------------------------------------------------------------------------------------------
ROLLOUT_FILES := $(RUN)/rollouts.jsonl $(if $(ROLLOUTS),$(RUN)/imported.jsonl)
comma := ,
empty :=
list = [$(subst $(empty) $(empty),$(comma),$(strip $(1)))]

quickstart: first $(RUN)/report.html
	@$(PY) -m eval.summary $(RUN)

first: $(D)/rules.parquet $(D)/prompted.parquet
	@$(PY) -m eval.summary $(RUN)

# the values of variables as files that change only when a value does
$(RUN)/.variables: FORCE | $(SETUP)
	@mkdir -p $(RUN)
	@echo 'MODEL=$(MODEL) ROLLOUTS=$(ROLLOUTS) SEED=$(SEED)' | cmp -s - $@ || echo 'MODEL=$(MODEL) ROLLOUTS=$(ROLLOUTS) SEED=$(SEED)' > $@
$(RUN)/.serve: FORCE | $(SETUP)
	@mkdir -p $(RUN)
	@echo '$(SERVE)' | cmp -s - $@ || echo '$(SERVE)' > $@
.PHONY: FORCE
FORCE:

$(RUN)/rollouts.jsonl: $(call config,simulate.yaml) $(RUN)/.variables
	$(PY) -m data.simulate $< out=$@ seed=$(SEED)

$(RUN)/imported.jsonl: $(call config,import.yaml) $(RUN)/.variables $(ROLLOUTS)
	$(PY) -m data.import_rollouts $< sources=[$(ROLLOUTS)] out=$@

$(RUN)/snapshots.parquet: $(call config,replay.yaml) $(ROLLOUT_FILES)
	$(PY) -m data.replay $< rollouts=$(call list,$(ROLLOUT_FILES)) out=$@

$(RUN)/labels.parquet: $(call config,label.yaml) $(RUN)/snapshots.parquet
	$(PY) -m data.label $< snapshots=$(RUN)/snapshots.parquet out=$@

$(RUN)/sft.parquet: $(call config,build.yaml) $(RUN)/labels.parquet
	$(PY) -m data.build $< snapshots=$(RUN)/snapshots.parquet labels=[$(RUN)/labels.parquet] rollouts=$(call list,$(ROLLOUT_FILES)) out=$@

$(RUN)/base.path: $(RUN)/.variables
	$(PY) -m train.base $(MODEL) > $@.part && mv $@.part $@

$(D)/rules.parquet: $(call config,score.yaml) $(RUN)/labels.parquet
	$(PY) -m eval.score $< run=$(RUN) arm=rules

$(D)/prompted.parquet: $(call config,score.yaml) $(RUN)/labels.parquet $(RUN)/base.path $(RUN)/.serve
	$(call scoring,$$(cat $(RUN)/base.path)) $(PY) -m eval.score $< run=$(RUN) arm=prompted model=$$(cat $(RUN)/base.path)$(over_http)

$(RUN)/sft/policy.json: $(call config,sft.yaml) $(RUN)/sft.parquet $(RUN)/base.path
	$(PY) -m train.sft $< rows=$(RUN)/sft.parquet base=$$(cat $(RUN)/base.path) out=$(RUN)/sft seed=$(SEED)

$(RUN)/samples.parquet: $(call config,score.yaml) $(RUN)/sft/policy.json
	$(PY) -m eval.score $< run=$(RUN) arm=sft splits=[train] samples=8 limit=$(SAMPLED) out=$@

$(RUN)/pivots.parquet: $(call config,pivots.yaml) $(RUN)/samples.parquet
	$(PY) -m data.pivots $< decisions=$(RUN)/samples.parquet snapshots=$(RUN)/snapshots.parquet labels=[$(RUN)/labels.parquet] out=$@

$(RUN)/grpo/policy.json: $(call config,grpo.yaml) $(RUN)/pivots.parquet
	$(PY) -m train.grpo $< pivots=$(RUN)/pivots.parquet start=$(RUN)/sft rows=$(RUN)/sft.parquet out=$(RUN)/grpo seed=$(SEED)

$(D)/sft.parquet: $(call config,score.yaml) $(RUN)/labels.parquet $(RUN)/sft/policy.json $(RUN)/.serve
	$(call scoring,$(RUN)/sft) $(PY) -m eval.score $< run=$(RUN) arm=sft$(over_http)

$(D)/sft_grpo.parquet: $(call config,score.yaml) $(RUN)/labels.parquet $(RUN)/grpo/policy.json $(RUN)/.serve
	$(call scoring,$(RUN)/grpo) $(PY) -m eval.score $< run=$(RUN) arm=sft_grpo$(over_http)

$(RUN)/threshold.json: $(call config,sweep.yaml) $(D)/rules.parquet $(D)/prompted.parquet $(D)/sft.parquet $(D)/sft_grpo.parquet
	$(PY) -m eval.sweep $< run=$(RUN)

$(RUN)/ab.json: $(call config,ab.yaml) $(RUN)/threshold.json
	$(PY) -m eval.ab $< run=$(RUN)

$(RUN)/report.html: $(call config,promote.yaml) $(RUN)/threshold.json $(RUN)/ab.json
	$(PY) -m eval.promote $< run=$(RUN)

# SERVE=vllm: the same scoring command runs beside a vLLM server of that model and asks it over HTTP
ifeq ($(SERVE),vllm)
scoring   = $(PY) -m serve.route $(call config,route.yaml) model=$(1) log_file=$(RUN)/vllm.log --
over_http = $(empty) url=http://127.0.0.1:8077/v1
endif
