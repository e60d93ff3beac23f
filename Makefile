# `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
CARGO ?= cargo
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.outrigger-stamp
LOCK := testenv/requirements.lock
PROTOS := $(wildcard proto/outrigger/v1/*.proto proto/inference/*.proto)
TARGET := $(or $(CARGO_TARGET_DIR),target)
BINARY := $(TARGET)/release/outrigger
TESTED := $(TARGET)/debug/outrigger
SHIPPED := $(TARGET)/dist/outrigger

GIVEN := $(OUTRIGGER_BIN)
# The binary that is measured and packed, unless OUTRIGGER_BIN names another one.
ifeq ($(origin OUTRIGGER_BIN),undefined)
bench image: export OUTRIGGER_BIN = $(abspath $(SHIPPED))
test test-python: export OUTRIGGER_BIN = $(abspath $(TESTED))
endif
export OUTRIGGER_BIN ?= $(abspath $(BINARY))
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: venv build tools ## see the whole system work; DATA=path takes the MineThatData file
	@$(PY) -m outrigger_testenv.demo $(if $(DATA),--data '$(DATA)')

.PHONY: demo-trees
demo-trees: venv build tools ## the same for a model of XGBoost, without TensorFlow; DATA=path as above
	@$(PY) -m outrigger_testenv.demo_trees $(if $(DATA),--data '$(DATA)')

.PHONY: demo-oip
demo-oip: venv build tools oip-peers ## the same for a model that MLServer runs, scored by Triton's client too; DATA=path as above
	@$(PY) -m outrigger_testenv.demo_oip $(if $(DATA),--data '$(DATA)')

.PHONY: demo-batch
demo-batch: venv build tools ## a table of rows scored by `outrigger batch`, killed in the middle and run again; DATA=path as above
	@$(PY) -m outrigger_testenv.demo_batch $(if $(DATA),--data '$(DATA)')

# Everything is compiled once, and then runs side by side, since the tests mostly wait. The output of
# each part is printed when it ends. The tests under load come last, alone. The tools are there by
# then: if the Rust tests waited for that target, another part would take their place.
.PHONY: test
test: ## all tests, Rust and Python
	@$(MAKE) --no-print-directory --jobs=2 venv programs
	@$(MAKE) --no-print-directory tools
	@$(MAKE) --no-print-directory peers || [ -z "$${CI:-}" ]
	@status=0; \
	$(MAKE) --no-print-directory --assume-old=tools --jobs=5 --keep-going --output-sync=target test-rust $(PYTHON_GROUPS) || status=$$?; \
	$(MAKE) --no-print-directory test-load || status=$$?; \
	exit $$status

# The Rust tests and the binary for the tests on real processes, of one build with checks of
# overflow and debug assertions.
# Of make's flags, cargo would take the number of its jobs.
.PHONY: programs
programs:
	env --unset=MAKEFLAGS $(CARGO) test --workspace --no-run

# The engine's tests run in its own directory, so they need the path of the library.
.PHONY: test-rust
test-rust: export OUTRIGGER_TENSORFLOW ?= $(abspath $(VENV))
test-rust: venv tools ## the Rust tests
	env --unset=MAKEFLAGS $(CARGO) test --workspace --no-fail-fast

.PHONY: test-fuzz
test-fuzz: ## the fuzz targets that build fast, on their corpora and for some seconds
	fuzz/run 5 quick

# Groups side by side: the tests on running stacks, of which there are two halves, mostly wait. Attacks
# come last, when another group has ended: attackers have the lowest priority.
TESTS := testenv/tests
PYTHON_GROUPS := test-environment test-stacks-a-l test-stacks-m-z test-parts test-attacks
.PHONY: test-python
test-python: venv tools programs ## the tests on real processes, of the chart and of the image
	@$(MAKE) --no-print-directory peers || [ -z "$${CI:-}" ]
	@$(MAKE) --no-print-directory --jobs=4 --keep-going --output-sync=target $(PYTHON_GROUPS)
	@$(MAKE) --no-print-directory test-load

.PHONY: $(PYTHON_GROUPS)
test-stacks-a-l:
	$(PY) -m pytest $(TESTS)/orchestration/test_[a-l]*.py
test-stacks-m-z:
	$(PY) -m pytest $(filter-out $(LOADED),$(wildcard $(TESTS)/orchestration/test_[m-z]*.py))
test-parts:
	$(PY) -m pytest $(addprefix $(TESTS)/,unit chart image upgrade)
test-environment:
	$(PY) -m pytest $(addprefix $(TESTS)/,environment execution)
test-attacks:
	$(PY) -m pytest $(TESTS)/attack

# These measure what callers see while the engine has too much to do: no other test takes part.
LOADED := $(TESTS)/orchestration/test_overload.py
.PHONY: test-load
test-load: venv tools programs
	$(PY) -m pytest $(LOADED)

.PHONY: lint
lint: venv ## the checks of CI: formatting, clippy, the fuzz targets, other processors, rustdoc, cargo-deny, ruff
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) check --quiet --locked --all-features --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)/fuzz
	$(CARGO) fmt --manifest-path testenv/peers/Cargo.toml --check
	$(CARGO) clippy --quiet --locked --manifest-path testenv/peers/Cargo.toml --target-dir $(TARGET)/peers -- -D warnings
	CARGO="$(CARGO)" scripts/check-portable
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	PATH="$(abspath $(VENV))/bin:$$PATH" scripts/check-dependencies
	$(PY) -m ruff check testenv packages
	$(PY) -m ruff format --check testenv packages

.PHONY: format
format: venv ## format Rust and Python
	$(CARGO) fmt --all
	$(PY) -m ruff check --fix --quiet testenv packages
	$(PY) -m ruff format --quiet testenv packages

.PHONY: build
build: ## the release binary, unless OUTRIGGER_BIN names another one
	$(if $(GIVEN),,$(CARGO) build --release --package outrigger-cli)

.PHONY: dist
dist: export CARGO := $(CARGO)
dist: ## the shipped binary: optimised as a whole and by profile, which takes minutes
	deploy/image/build

# Programs of the build itself must not write counts. Needs llvm-profdata (Debian's llvm-19).
.PHONY: profile
profile: venv tools ## new counts for the profile of `dist`; ADD=1 adds them to those of another architecture
	@command -v $${LLVM_PROFDATA:-llvm-profdata-19} > /dev/null || { echo 'llvm-profdata-19 is missing: apt-get install llvm-19, or set LLVM_PROFDATA' >&2; exit 69; }
	LLVM_PROFILE_FILE=/dev/null RUSTFLAGS=-Cprofile-generate \
	  $(CARGO) build --profile dist --target-dir $(TARGET)/training --package outrigger-cli
	OUTRIGGER_BIN=$(abspath $(TARGET)/training/dist/outrigger) \
	  $(PY) -m outrigger_testenv.bench.training --output $(TARGET)/training/serving.profdata \
	  $(if $(ADD),--add deploy/image/serving.profdata.gz)
	gzip --best --no-name --stdout $(TARGET)/training/serving.profdata > deploy/image/serving.profdata.gz

.PHONY: image
image: export CARGO := $(CARGO)
image: venv dist ## the container image as an OCI layout, with its SBOM; needs no container engine
	@$(PY) -m outrigger_testenv.image --output $(TARGET)/image

.PHONY: venv
venv: $(STAMP) ## the Python environment, with TensorFlow's CPU wheel and outrigger-delta

$(STAMP): $(LOCK) testenv/pyproject.toml packages/delta/pyproject.toml $(PROTOS)
	@[ -x $(PY) ] || $(PYTHON) -m venv $(VENV)
	@echo "python packages: $(LOCK)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --requirement $(LOCK)
	@PYTHONPATH=testenv/src $(PY) -m outrigger_testenv.stubs
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --editable testenv --editable packages/delta
	@touch $@

.PHONY: chart-golden
chart-golden: venv ## rewrite the objects that the Helm chart renders for the tests' values
	@$(PY) -m outrigger_testenv.chart.golden

# The binary and chart of the commit that testenv/tests/upgrade/fixtures/README.md names.
.PHONY: upgrade-fixtures
upgrade-fixtures: venv tools ## rewrite the files of the previous version for the upgrade tests; BINARY_BEFORE=path, CHART_BEFORE=dir
	@$(PY) -m outrigger_testenv.upgrade $(if $(BINARY_BEFORE),--binary '$(BINARY_BEFORE)') \
	  $(if $(CHART_BEFORE),--chart '$(CHART_BEFORE)') $(if $(ONLY),--only '$(ONLY)')

.PHONY: tools
tools: ## docker-registry, skopeo, umoci, buildah, bubblewrap, promtool and chromium, if they can be installed
	@scripts/install-test-tools

.PHONY: validate-model
validate-model: venv build tools ## check a model directory before it ships: MODEL=dir; DATA=file of rows to score
	@[ -n '$(MODEL)' ] || { echo 'which one? make validate-model MODEL=dir' >&2; exit 64; }
	@$(PY) -m pytest testenv/tests/execution --model '$(abspath $(MODEL))' \
	  $(if $(DATA),--rows '$(abspath $(DATA))')

.PHONY: conformance
conformance: venv ## compare a running engine with TensorFlow Serving's documented behaviour: ENGINE=address, MODELS=directory that it sees; ONLY=prefix of rows, TABLE=file for Markdown
	@[ -n '$(ENGINE)' ] && [ -n '$(MODELS)' ] || \
	  { echo 'which one? make conformance ENGINE=localhost:8500 MODELS=/tmp/conformance' >&2; exit 64; }
	@$(PY) -m outrigger_testenv.conformance --engine '$(ENGINE)' --models '$(MODELS)' \
	  $(if $(ONLY),--only '$(ONLY)') $(if $(TABLE),--output '$(TABLE)')

# What tests compare with, and take long to install or to build: kept outside git.
.PHONY: peers
peers: oip-peers object-stores language-server catboost kube-apiserver ## install and build all that tests compare with into the cache: these five, and the version that upgrades begin with
	@scripts/build-commit "$$($(PY) -m outrigger_testenv.upgrade.previous)" > /dev/null

# The servers and clients that conformance-oip, the tests and the demo of the protocol need.
.PHONY: oip-peers
oip-peers: venv ## install Triton, MLServer, KServe and tritonclient into the cache, for the tests with them
	@$(PY) -m outrigger_testenv.oip

# The first build takes minutes, as one of a new version does, and one of a changed main.go seconds.
.PHONY: kube-apiserver
kube-apiserver: venv ## build the Kubernetes API server and job controller into the cache, for the tests with them; needs Go
	@$(PY) -m outrigger_testenv.kubernetes

.PHONY: object-stores
object-stores: venv ## install stores of objects (S3, Azure) into the cache, for the tests with them
	@$(PY) -m outrigger_testenv.stores

.PHONY: language-server
language-server: venv ## install llama.cpp's server into the cache, for the tests with it
	@$(PY) -m outrigger_testenv.language

.PHONY: catboost
catboost: venv ## install CatBoost into the cache, for the tests with it
	@$(PY) -m outrigger_testenv.boosting

.PHONY: conformance-oip
conformance-oip: venv ## compare a running server with the rules of the Open Inference Protocol: REST=address, GRPC=address; UNREADY_REST, UNREADY_GRPC, REPOSITORY=addresses, LARGEST=bytes, ONLY=S17,S20, TABLE=file for Markdown
	@[ -n '$(REST)' ] && [ -n '$(GRPC)' ] || \
	  { echo 'which one? make conformance-oip REST=localhost:8000 GRPC=localhost:8001' >&2; exit 64; }
	@$(PY) -m outrigger_testenv.conformance_oip --rest '$(REST)' --grpc '$(GRPC)' \
	  $(if $(UNREADY_REST),--unready-rest '$(UNREADY_REST)' --unready-grpc '$(UNREADY_GRPC)') \
	  $(if $(REPOSITORY),--repository '$(REPOSITORY)') $(if $(LARGEST),--largest '$(LARGEST)') \
	  $(if $(ONLY),--only '$(ONLY)') $(if $(TABLE),--output '$(TABLE)')

.PHONY: conformance-oip-page
conformance-oip-page: venv build oip-peers ## write the table of docs/oip.md: Outrigger, Triton, MLServer and KServe
	@$(PY) -m outrigger_testenv.conformance_oip.page

.PHONY: bench
bench: export CARGO := $(CARGO)
bench: venv dist ## the figures; ONLY=prefix of their names (ONLY=batch- for those of batch jobs, which are left out otherwise), QUICK=1 to try, STRICT=1 fails on a miss, BEFORE=commit compares, TABLES=1 writes the tables of the docs, DOCS=1 with ONLY=layout those of the forms of models
	@$(PY) -m outrigger_testenv.bench$(if $(TABLES),.tables) --output $(TARGET)/bench \
	  $(if $(ONLY),--only '$(ONLY)') $(if $(QUICK),--quick) \
	  $(if $(STRICT),--strict) $(if $(DOCS),--docs) $(if $(BEFORE),--before '$(BEFORE)')

.PHONY: soak
soak: ## a batch job of half an hour whose hosts end, whose settings change and whose store goes away; QUICK=1 to try
	@$(MAKE) --no-print-directory bench ONLY=soak

.PHONY: attack
attack: venv build tools ## attack the real processes: a table of what it costs the others; ONLY=prefix, QUICK=1 to try, DOCS=1 writes it into the docs
	@$(PY) -m outrigger_testenv.attack --output $(TARGET)/attack \
	  $(if $(ONLY),--only '$(ONLY)') $(if $(QUICK),--quick) $(if $(DOCS),--docs)

.PHONY: fuzz
fuzz: ## fuzz the readers and the transcoder; FUZZ_SECONDS=600 per target
	fuzz/run $(or $(FUZZ_SECONDS),600)

.PHONY: clean
clean: ## remove all build results
	$(CARGO) clean
	rm -rf $(VENV) .demo testenv/build testenv/src/outrigger testenv/src/inference testenv/src/*.egg-info packages/*/src/*.egg-info
