# berth: `make demo` and `make test` also do the set-up that they need. `make help` lists all targets.

# Before make 3.82 (macOS has 3.81) .SHELLFLAGS has no effect, so a recipe would continue after a failed command.
ifeq ($(filter undefine,$(.FEATURES)),)
$(error berth: error: this is GNU make $(MAKE_VERSION), and 3.82 or newer is needed: on macOS 'brew install make', then 'gmake' instead of 'make')
endif
ifeq ($(wildcard berth/train/__init__.py),)
$(error berth: error: the folder berth has plain files instead of links, as some programs for zip files and git on Windows write them: clone the repository with git where links work, 'git clone -c core.symlinks=true')
endif

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

OUT ?= out
# Prefer Debian's own 3.11, which the images have: another build may have modules that Debian's lacks. Else take the first
# that is new enough.
new_enough = $(shell $(1) -c 'import sys; sys.version_info >= (3, 11) and print("$(1)")' 2>/dev/null)
SYSTEM_PYTHON := $(or $(call new_enough,/usr/bin/python3.11),$(call new_enough,python3.11),$(call new_enough,/usr/bin/python3),$\
  $(call new_enough,python3.12),$(call new_enough,python3.13),$(call new_enough,python3))
# The prefix of Debian's packages for it, such as python3.11-venv and python3.11-dev.
DEBIAN_PYTHON := $(shell $(SYSTEM_PYTHON) -c 'import sys; print("python%d.%d" % sys.version_info[:2])' 2>/dev/null)
PYTHON := .venv/bin/python
UV := .venv/bin/uv
# Make .venv again if another Python made it.
READ_VENV_PYTHON := sed -nE 's/^(executable|version) = //p' .venv/pyvenv.cfg
READ_SYSTEM_PYTHON := $(SYSTEM_PYTHON) -c 'import os, platform, sys; print(os.path.realpath(sys.executable), platform.python_version())'
ifneq ($(sort $(shell $(READ_VENV_PYTHON) 2>/dev/null)),$(sort $(shell $(READ_SYSTEM_PYTHON) 2>/dev/null)))
.PHONY: $(UV)
endif

# uv with pip's settings, which uv does not read itself. It needs the pip and uv of .venv. An install compiles bytecode:
# with PYTHONDONTWRITEBYTECODE set, Python would compile every package again at each start of build.py or of a test.
RUN_UV := UV_COMPILE_BYTECODE=1 $(PYTHON) -m berth.images.locks.uv

# Write bytecode even where PYTHONDONTWRITEBYTECODE is set: the tests start hundreds of processes that import berth, and
# `build.py --help` takes 1.7 s without bytecode and 0.5 s with it.
export PYTHONDONTWRITEBYTECODE :=

# apt asks no questions, and debconf does not warn about that.
export DEBIAN_FRONTEND := noninteractive
export DEBCONF_NOWARNINGS := yes

# The CPU build of torch: from a folder of pip's settings if one has the wheel, else from the index of its profile.
WHEEL_FOLDERS = $(shell $(PYTHON) -m berth.images.network.build_network)
TORCH_INDEX := $(firstword $(shell sed -n 's/^torch_index = "\(.*\/cpu\)"/\1/p' docker/pins.toml))
TORCH_FOLDERS = $(patsubst %/,--find-links %,$(sort $(dir $(wildcard $(addsuffix /torch-*cpu*.whl,$(WHEEL_FOLDERS))))))
TORCH_FROM = $(or $(TORCH_FOLDERS),--index $(TORCH_INDEX) --index-strategy unsafe-best-match)
comma := ,

# The parts of `make test` depend on each other, and each of them uses all cores.
.NOTPARALLEL:

.PHONY: help
help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# Without these rules make would say that a folder such as `train` is up to date.
FOLDERS := $(filter-out berth,$(patsubst %/,%,$(wildcard */)))
.PHONY: $(FOLDERS)
$(FOLDERS):
	@echo "berth: error: $@ is a folder and not a target: $(if $(filter train serve,$@),run 'python build.py run $@'$(comma) or )see 'make help'." >&2; exit 2

.PHONY: demo
demo: base ## build both images, fine-tune on the embedded sample, serve the result, answer two questions
	$(WITH_BASE) $(PYTHON) build.py build all
	$(PYTHON) build.py size
	$(PYTHON) build.py demo --output $(OUT)

TEST_PARTS := lint unit engine images image-tests registry local-mode
.PHONY: test
test: ## everything that CI checks: lint, unit, image and local mode tests; prints the time of each part
	@took=""; for part in $(TEST_PARTS); do \
	  began=$$SECONDS; $(MAKE) --no-print-directory $$part; took+="$$part $$((SECONDS - began)) s, "; \
	done; echo "took: $${took}in all $$SECONDS s"

.PHONY: nightly
nightly: browser ## all tests, including those that `make test` leaves out; about an hour
	@$(MAKE) --no-print-directory test SELECTED= TEST_PARTS="$(TEST_PARTS) older-image"

.PHONY: setup
setup: .venv/installed ## the environment of build.py, in .venv

.PHONY: setup-tests
setup-tests: .venv/tested ## the same, and what berth's own tests need, such as torch and a compiler

.PHONY: lint
lint: .venv/tested ## ruff, hadolint, shellcheck and mypy; runs all of them even if one fails
	@code=0; for words in \
	  "ruff check ." \
	  "ruff format --check ." \
	  "hadolint --config docker/hadolint.yaml docker/Dockerfile bench/*.Dockerfile" \
	  "shellcheck --external-sources docker/*.sh docker/layers/*.sh .ci/run" \
	  "mypy --package berth" \
	  "mypy build.py"; \
	do echo "$$words"; .venv/bin/$$words || code=1; done; exit $$code

# Print the slowest tests, to find those that could be faster.
SLOWEST := --durations=10 --durations-min=5
# The selected tests: `make test` leaves out long tests that prove little more than a short one.
SELECTED := -m 'not nightly'
# Three processes on two cores, because many tests wait for what they start. All tests of a file run in the same process,
# because they share what is slow to make (tests/groups.py).
IN_PARALLEL := --numprocesses 3 -p tests.groups
# The longest files come first.
UNITS_IN_PARALLEL := $(IN_PARALLEL) --no-loadscope-reorder
UNIT_TESTS := smdistributed/tests tests/unit

# Not $(MAKE) itself: a dry run would run the lines that contain it.
SELF := $(MAKE)
.PHONY: quick
quick: .venv/tested ## lint, and in parallel the unit tests that are not slow; about 90 seconds
	@$(SELF) --no-print-directory lint >.venv/lint.log 2>&1 & lint=$$!; code=0; \
	$(PYTHON) -m pytest -q $(UNITS_IN_PARALLEL) -m 'not slow and not nightly' $(UNIT_TESTS) || code=$$?; \
	wait $$lint || code=$$?; cat .venv/lint.log; exit $$code

.PHONY: unit
unit: .venv/tested .venv-reference/installed ## all unit tests, without Docker; about six minutes
	BERTH_REFERENCE_PYTHON="$(CURDIR)/.venv-reference/bin/python" $(PYTHON) -m pytest $(SELECTED) $(UNITS_IN_PARALLEL) $(SLOWEST) $(UNIT_TESTS)

.PHONY: images
images: base ## build both images
	$(WITH_BASE) $(PYTHON) build.py build all

# Options of `build.py build`, such as `--without efa --without smddp`, or `--mirror FOLDER`.
BUILD_OPTIONS ?=
GPU_PROFILES ?= $(shell sed -n 's/^\[profiles\.\(cu[0-9][a-z0-9-]*\)\]$$/\1/p' docker/pins.toml)
.PHONY: gpu-images
gpu-images: .venv/tested .venv-sdk2/installed .venv-sdk3/installed .venv/bin/docker-registry base ## build and test the images with CUDA, without a GPU; prints time and disk space
	@took=""; for profile in $(GPU_PROFILES); do \
	  began=$$SECONDS; $(WITH_BASE) $(PYTHON) build.py build all --profile $$profile $(BUILD_OPTIONS); \
	  took+="$$profile built in $$((SECONDS - began)) s"; \
	  began=$$SECONDS; case $$profile in \
	    *-*) $(PYTHON) build.py test all --profile $$profile ;; \
	    *) $(WITH_BASE) BERTH_PROFILE=$$profile $(PYTHON) -m pytest tests/images tests/registry/test_push.py tests/local_mode ;; \
	  esac; \
	  $(PYTHON) build.py size all --profile $$profile; \
	  took+=" and tested in $$((SECONDS - began)) s, "; \
	done; echo "took: $${took}in all $$SECONDS s"; docker system df

.PHONY: image-tests
image-tests: base .venv/tested ## test the built images from inside, and as running containers
	$(WITH_BASE) $(PYTHON) -m pytest $(SELECTED) $(IN_PARALLEL) $(SLOWEST) tests/images

OLDER_PROFILE := cpu-hf4
OLDER_TESTS := test_profiles train/test_hf4 train/test_metrics train/test_smdistributed train/test_start_hook
.PHONY: older-image
older-image: base .venv/tested ## build and test the training image for scripts written before transformers 5
	$(WITH_BASE) $(PYTHON) build.py build train --profile $(OLDER_PROFILE)
	$(WITH_BASE) BERTH_PROFILE=$(OLDER_PROFILE) $(PYTHON) -m pytest $(SELECTED) $(SLOWEST) $(OLDER_TESTS:%=tests/images/%.py)

.PHONY: registry
registry: base .venv/tested .venv/bin/docker-registry ## test pushes of the built images to a real registry, including faults
	$(WITH_BASE) $(PYTHON) -m pytest $(SELECTED) $(IN_PARALLEL) $(SLOWEST) tests/registry

.PHONY: local-mode
local-mode: .venv/tested .venv-sdk2/installed .venv-sdk3/installed ## test the built images with the real SageMaker SDKs in local mode
	$(PYTHON) -m pytest $(SELECTED) $(IN_PARALLEL) $(SLOWEST) tests/local_mode

.PHONY: requests
requests: .venv/tested .venv-sdk2/installed .venv-sdk3/installed ## record what the SDKs send for jobs and endpoints, for the unit tests
	$(PYTHON) -m tests.local_mode.recorded
	$(PYTHON) -m tests.unit.train.launch_table

.PHONY: clients
clients: .venv/tested .venv-sdk2/installed .venv-sdk3/installed ## run every estimator and distribution of both SDKs in local mode; writes bench/results
	$(PYTHON) -m bench.clients

# Keep what a program prints also if it ends with 1, because a figure may be outside its limits.
define write_result
$(PYTHON) -m bench.$(1) >.venv/result.md || code=$$?; \
test ! -s .venv/result.md || mv .venv/result.md "bench/results/$$(date +%F)-$(1).md"
endef
JOB_TESTS := faults hosts checkpoints interrupts stops
.PHONY: jobs
jobs: .venv/tested ## kill jobs in containers and cause faults: what do they lose and report? writes bench/results; two hours
	@code=0; $(PYTHON) -m pytest $(JOB_TESTS:%=tests/images/train/test_%.py) || code=$$?; \
	$(call write_result,faults); $(call write_result,peers); $(call write_result,kills); exit $$code

.PHONY: engines
engines: base .venv/tested .venv/bin/docker-registry ## test berth on Docker 20.10, 26.1, 28.5 and podman; writes bench/results; 45 minutes, needs root
	@export $(WITH_BASE); code=0; $(call write_result,engines); exit $$code

GPU_PROFILE ?= $(firstword $(GPU_PROFILES))
.PHONY: gpu-check
gpu-check: setup ## measure this machine's GPUs in the built images of a CUDA profile
	$(PYTHON) build.py gpu-check --profile $(GPU_PROFILE) --json $(OUT)/gpu-check.json

.PHONY: engine
engine: ## install and start a Docker engine if none answers
	@sh docker/engine.sh

# If no image registry has the pinned base, builds start from one made from Debian's package archive. Only this target
# decides it, and writes the base's name to .venv/base. Other targets read it there, unless BERTH_BASE_IMAGE is set.
.PHONY: base
base: engine setup ## find the base image of builds, or make it from Debian's archive if no registry has it
	@test -n "$${BERTH_BASE_IMAGE:-}" || $(PYTHON) build.py base --if-needed >.venv/base
WITH_BASE := BERTH_BASE_IMAGE="$${BERTH_BASE_IMAGE:-$$(cat .venv/base)}"

.PHONY: format
format: .venv/tested ## let ruff fix and format the code
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

COMPILE := $(RUN_UV) pip compile --quiet --no-header --no-annotate --generate-hashes --python-version 3.11
# $(call write_lock,FILE,WHAT IT IS,COMMAND...): a command that fails leaves the lock as it was.
define write_lock
{ echo '# Made by `make lock`: $(2); never edited by hand.'; $(3); } > requirements.new
mv requirements.new $(1)
endef

.PHONY: lock
lock: setup ## render docker/pins.toml and make all locks of all profiles again
	$(PYTHON) build.py pins
	$(call write_lock,requirements.txt,what build.py needs (extra machine) and the model of the demo,\
	  $(COMPILE) --extra machine pyproject.toml; $(COMPILE) --no-deps --group demo)
	sed -n 's/^\([a-z0-9-]*==[^ ]*\).*/\1/p' docker/locks/cpu/*.txt requirements.txt | grep -v '^retrying==' | sort -u > .venv/constraints.txt
	mkdir -p .venv/lock && $(PYTHON) -m berth.images.locks.locks pyproject.toml > .venv/lock/pyproject.toml
	$(call write_lock,tests/requirements.txt,what the tests need (extra test) in the versions of the images,\
	  $(COMPILE) --constraint .venv/constraints.txt --no-emit-index-url --extra machine --extra test .venv/lock/pyproject.toml)
	$(call write_lock,tests/local_mode/sdk2.txt,SageMaker SDK v2 (group sdk2),$(COMPILE) --group sdk2)
	$(call write_lock,tests/local_mode/sdk3.txt,SageMaker SDK v3 (group sdk3),$(COMPILE) --group sdk3)
	$(call write_lock,tests/unit/qa/requirements.txt,the official SQuAD scripts (group squad-scripts),$(COMPILE) --no-deps --group squad-scripts)

.PHONY: fresh
fresh: setup engine ## run README's `make demo` and `make test` in a Debian 12 with only the packages that it names; an hour, needs root
	$(PYTHON) -m bench.fresh $(FRESH_COMMANDS)

.PHONY: clean
clean: ## remove what berth made: containers, networks, images, environments
	test ! -x $(PYTHON) || $(PYTHON) build.py clean
	rm -rf .venv .venv-reference .venv-sdk2 .venv-sdk3 build ./*.egg-info

# The tools that install everything else have a lock with hashes, too.
BUILD_TOOLS := docker/locks/build.txt
$(UV): $(BUILD_TOOLS)
	@test -n "$(SYSTEM_PYTHON)" && $(SYSTEM_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "berth: error: Python 3.11 or newer is needed: install it, for example with 'apt-get install python3 python3-venv'." >&2; exit 1; }
	@echo "setup: .venv with $(SYSTEM_PYTHON)"
	@rm -rf .venv
	@$(SYSTEM_PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  test "$$(id -u)" -eq 0 && apt-get update -qq && apt-get install -qq --yes --no-install-recommends $(DEBIAN_PYTHON)-venv >/dev/null; } || \
	  { echo "berth: error: this Python can't make environments: install its venv package, 'sudo apt-get install $(DEBIAN_PYTHON)-venv'." >&2; exit 1; }
	@$(SYSTEM_PYTHON) -m venv .venv
	@$(PYTHON) -m pip install --quiet --no-input --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r $(BUILD_TOOLS)

.venv/host: requirements.txt $(UV)
	@echo "setup: what build.py needs"
	@$(RUN_UV) pip install --quiet --python $(PYTHON) --no-deps --require-hashes -r requirements.txt
	@touch $@

.venv/installed: .venv/host pyproject.toml berth
	@$(RUN_UV) pip install --quiet --python $(PYTHON) --no-deps --require-hashes -r $(BUILD_TOOLS)
	@$(RUN_UV) pip install --quiet --python $(PYTHON) --no-deps --no-build-isolation --editable .
	@touch $@

# The tests install the images' packages, so they need the images' Python. sagemaker-training has no wheel and a C file.
.venv/tested: tests/requirements.txt .venv/installed
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "berth: error: the tests need Python 3.11, as the images have: install python3.11, run 'make clean', then 'make test'." >&2; exit 1; }
	@echo "setup: what the tests need"
	@{ command -v cc >/dev/null && test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; } || \
	  { test "$$(id -u)" -eq 0 && apt-get update -qq && \
	  apt-get install -qq --yes --no-install-recommends gcc libc6-dev $(DEBIAN_PYTHON)-dev >/dev/null; } || \
	  { echo "berth: error: the tests need a C compiler and Python's headers: 'sudo apt-get install gcc libc6-dev $(DEBIAN_PYTHON)-dev'." >&2; exit 1; }
	@command -v ssh-keygen >/dev/null || { test "$$(id -u)" -eq 0 && apt-get update -qq && \
	  apt-get install -qq --yes --no-install-recommends openssh-client >/dev/null; } || \
	  { echo "berth: error: the tests make SSH keys and need ssh-keygen: 'sudo apt-get install openssh-client'." >&2; exit 1; }
	@$(RUN_UV) pip install --quiet --python $(PYTHON) $(TORCH_FROM) --no-deps --require-hashes -r tests/requirements.txt
	@touch $@

.PHONY: browser
browser:
	@{ command -v chromium && command -v chromedriver; } >/dev/null || { test "$$(id -u)" -eq 0 && apt-get update -qq && \
	  apt-get install -qq --yes --no-install-recommends chromium chromium-driver >/dev/null; } || \
	  { echo "berth: error: the nightly tests use the endpoint's page in a browser: 'sudo apt-get install chromium chromium-driver'." >&2; exit 1; }

# The official SQuAD scripts from an independent package: ours must give the same EM and F1.
.venv-reference/installed: tests/unit/qa/requirements.txt $(UV)
	@echo "setup: the reference for EM and F1"
	@$(RUN_UV) venv --quiet --clear --python $(SYSTEM_PYTHON) .venv-reference
	@$(RUN_UV) pip install --quiet --python .venv-reference/bin/python --no-deps --require-hashes -r tests/unit/qa/requirements.txt
	@touch $@

# The registry of Debian's package, extracted: if the package were installed, it would run as a service.
.venv/bin/docker-registry: $(UV)
	@echo "setup: the registry that the tests push to"
	@{ command -v docker-registry >/dev/null && ln -sf "$$(command -v docker-registry)" $@; } || { \
	  rm -rf .venv/registry && mkdir .venv/registry && cd .venv/registry && \
	  { apt-get download -qq docker-registry 2>/dev/null || { apt-get update -qq && apt-get download -qq docker-registry; }; } && \
	  dpkg-deb -x docker-registry_*.deb . && ln -sf ../registry/usr/bin/docker-registry ../bin/docker-registry; } || \
	  { echo "berth: error: the registry tests need the program docker-registry: put it on PATH. Debian's package docker-registry has it." >&2; exit 1; }

# The SDK calls docker-compose, and pgrep when an endpoint ends.
.venv-sdk2/installed: tests/local_mode/sdk2.txt $(UV)
	@echo "setup: SageMaker's SDK v2 and docker-compose"
	@{ command -v docker-compose && command -v pgrep; } >/dev/null || { test "$$(id -u)" -eq 0 && apt-get update -qq && \
	  apt-get install -qq --yes --no-install-recommends docker-compose procps >/dev/null; } || \
	  { echo "berth: error: the local mode tests need docker-compose and pgrep: 'sudo apt-get install docker-compose procps'." >&2; exit 1; }
	@$(RUN_UV) venv --quiet --clear --python $(SYSTEM_PYTHON) .venv-sdk2
	@$(RUN_UV) pip install --quiet --python .venv-sdk2/bin/python --no-deps --require-hashes -r tests/local_mode/sdk2.txt
	@touch $@

.venv-sdk3/installed: tests/local_mode/sdk3.txt $(UV)
	@echo "setup: SageMaker's SDK v3"
	@$(RUN_UV) venv --quiet --clear --python $(SYSTEM_PYTHON) .venv-sdk3
	@$(RUN_UV) pip install --quiet --python .venv-sdk3/bin/python --no-deps --require-hashes -r tests/local_mode/sdk3.txt
	@touch $@
