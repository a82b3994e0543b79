# pmem: `make quickstart` goes from rollouts to a verdict; `make test` passes the tests. Both set up all they need in .venv/.
#
#   make quickstart                        simulated rollouts, SmolLM2-135M, in-process scoring: about 40 minutes on 2 cores
#   make quickstart ROLLOUTS=path          your own rollouts (any imported format) join the run
#   make quickstart MODEL=hub/id           another base model (hub id or local folder)
#   make quickstart SERVE=vllm             serve through vLLM and score over HTTP
#   make test | make slow | make lint      fast tests, slow tests, linters
#
# Rules are the files of a run: a stopped run goes on where it stood, a changed input rebuilds what depends on it.

PYTHON   ?= python3
RUN      ?= runs/quickstart
MODEL    ?=
ROLLOUTS ?=
SERVE    ?= embedded
SEED     ?= 17

VENV := .venv
PY   := $(VENV)/bin/python
D    := $(RUN)/decisions

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

slow: $(VENV)/.installed-dev
	$(PY) -m pytest -m slow

lint: $(VENV)/.installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

clean:
	rm -rf $(RUN)
