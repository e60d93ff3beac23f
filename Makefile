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
DEMO_STAMP := $(VENV)/.outrigger-demo-stamp
LOCK := testenv/requirements.lock
DEMO_LOCK := testenv/requirements-demo.lock
PROTOS := $(wildcard proto/outrigger/v1/*.proto proto/inference/*.proto)
TARGET := $(or $(CARGO_TARGET_DIR),target)
BINARY := $(TARGET)/release/outrigger
TESTED := $(TARGET)/debug/outrigger
SHIPPED := $(TARGET)/dist/outrigger

GIVEN := $(OUTRIGGER_BIN)
# The binary that is measured and packed, unless OUTRIGGER_BIN names another one.
ifeq ($(origin OUTRIGGER_BIN),undefined)
bench image: export OUTRIGGER_BIN = $(abspath $(SHIPPED))
demo demo-trees demo-oip demo-batch test test-peers test-all: export OUTRIGGER_BIN = $(abspath $(TESTED))
endif
export OUTRIGGER_BIN ?= $(abspath $(BINARY))
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The demos run the binary of the tests, unless OUTRIGGER_BIN names another one: the shipped one takes
# several times as long to compile.
prepare = scripts/prepare --then 'the demo' $(if $(GIVEN),,'binary of the tests=$(MAKE) --no-print-directory program')

.PHONY: demo
demo: ## see the whole system work; DATA=path takes the MineThatData file
	@$(prepare) 'TensorFlow and gRPC for Python=$(MAKE) --no-print-directory venv-demo' \
	  'registry=scripts/install-test-tools docker-registry'
	@$(PY) -m outrigger_testenv.demo $(if $(DATA),--data '$(DATA)')

.PHONY: demo-trees
demo-trees: ## the same for a model of XGBoost, without TensorFlow; DATA=path as above
	@$(prepare) 'Python packages=$(MAKE) --no-print-directory venv' 'registry=scripts/install-test-tools docker-registry'
	@$(PY) -m outrigger_testenv.demo_trees $(if $(DATA),--data '$(DATA)')

.PHONY: demo-oip
demo-oip: ## the same for a model that MLServer runs, scored by Triton's client too; DATA=path as above
	@$(prepare) 'servers of the protocol=$(MAKE) --no-print-directory oip-peers' 'registry=scripts/install-test-tools docker-registry'
	@$(PY) -m outrigger_testenv.demo_oip $(if $(DATA),--data '$(DATA)')

.PHONY: demo-batch
demo-batch: ## a table of rows scored by `outrigger batch`, killed in the middle and run again; DATA=path as above
	@$(prepare) 'Python packages=$(MAKE) --no-print-directory venv'
	@$(PY) -m outrigger_testenv.demo_batch $(if $(DATA),--data '$(DATA)')

# Everything is compiled once, and then runs side by side, since the tests mostly wait. The output of
# each part is printed when it ends. What they need is there by then: if the Rust tests waited for a
# target, another part would take their place.
compiled = $(MAKE) --no-print-directory --jobs=2 venv programs
side_by_side = $(MAKE) --no-print-directory $(addprefix --assume-old=,venv tools programs) --keep-going \
  --output-sync=target --jobs=5

.PHONY: test
test: ## what a change can break: the Rust tests, and those on real processes of this project
	@$(compiled)
	@scripts/install-test-tools docker-registry skopeo umoci bwrap openssl prometheus
	@$(side_by_side) $(TESTS)

# Attacks and those under load come last, alone: they measure what callers see while others take all.
.PHONY: test-peers
test-peers: ## the tests beside other projects' programs, of images, upgrades and attacks, and those under load
	@$(compiled)
	@$(MAKE) --no-print-directory tools
	@$(MAKE) --no-print-directory peers || [ -z "$${CI:-}" ]
	@status=0; \
	$(side_by_side) $(TESTS_TOO) $(PEER_TESTS) || status=$$?; \
	for last in test-attacks test-load; do $(MAKE) --no-print-directory $$last || status=$$?; done; \
	exit $$status

.PHONY: test-all
test-all: TESTS_TOO = $(TESTS)
test-all: test-peers ## both, side by side

# The binary for the demos and for the tests on real processes, with checks of overflow and debug
# assertions. The small test beside it makes cargo select the features of dependencies that it selects
# for all tests, so that none is compiled again for those.
.PHONY: program
program:
	@env --unset=MAKEFLAGS $(CARGO) build --workspace --bins --test compatibility

# The same with all Rust tests. Of make's flags, cargo would take the number of its jobs.
.PHONY: programs
programs:
	env --unset=MAKEFLAGS $(CARGO) test --workspace --no-run

.PHONY: compiled-once
compiled-once: ## compile the demos' program, then all tests, and fail if those compile anything again
	@env --unset=MAKEFLAGS CARGO="$(CARGO)" scripts/check-compiled-once

# The engine's tests run in its own directory, so they need the path of the library.
.PHONY: test-rust
test-rust: export OUTRIGGER_TENSORFLOW ?= $(abspath $(VENV))
test-rust: venv tools ## the Rust tests
	env --unset=MAKEFLAGS $(in_time) $(CARGO) test --workspace --no-fail-fast

.PHONY: test-fuzz
test-fuzz: ## the fuzz targets that build fast, on their corpora and for some seconds
	fuzz/run 5 quick

TESTS := test-rust test-stacks test-environment test-parts
PEER_TESTS := test-peers-a-n test-peers-o-z test-image
PYTHON_TESTS := testenv/tests
# In CI a part that hangs is interrupted, so that its output says where.
in_time := $(if $(CI),timeout --signal=INT --kill-after=60 30m)
pytest = @TIMEFORMAT='took: $@ %0R s, %0U s of CPU and %0S s of it in the system'; time $(in_time) $(PY) -m pytest

.PHONY: $(filter-out test-rust,$(TESTS)) $(PEER_TESTS) test-attacks test-load
test-stacks: venv tools programs
	$(pytest) $(PYTHON_TESTS)/orchestration
test-parts: venv tools programs
	$(pytest) $(addprefix $(PYTHON_TESTS)/,unit chart execution)
test-peers-a-n: venv tools programs
	$(pytest) $(PYTHON_TESTS)/peers/test_[a-n]*.py
test-peers-o-z: venv tools programs
	$(pytest) $(filter-out $(LOADED),$(wildcard $(PYTHON_TESTS)/peers/test_[o-z]*.py))
test-environment: venv tools programs
	$(pytest) $(PYTHON_TESTS)/environment
test-image: venv tools programs
	$(pytest) $(addprefix $(PYTHON_TESTS)/,image upgrade)
test-attacks: venv tools programs
	$(pytest) $(PYTHON_TESTS)/attack

LOADED := $(PYTHON_TESTS)/peers/test_overload.py
test-load: venv tools programs
	$(pytest) $(LOADED)

.PHONY: same
same: export OUTRIGGER_BIN = $(abspath $(or $(GIVEN),$(TESTED)))
same: venv ## send the cases of testenv/same to this program and to that of an earlier commit, and compare; ONLY=prefix of their names, BEFORE=program
	@$(if $(GIVEN),,$(MAKE) --no-print-directory program)
	@$(PY) -m outrigger_testenv.same $(if $(ONLY),--only '$(ONLY)') $(if $(BEFORE),--before '$(abspath $(BEFORE))')

.PHONY: cost
cost: venv build ## count instructions, allocations, copies and system calls of a request in release builds of this commit and of the anchors; ONLY=prefix of parts
	@$(PY) -m outrigger_testenv.cost $(if $(ONLY),--only '$(ONLY)')

.PHONY: cost-limits
cost-limits: export OUTRIGGER_BIN = $(abspath $(or $(GIVEN),$(TESTED)))
cost-limits: venv ## hold the program of the tests against the anchors' recorded counts; ONLY=prefix of parts
	@$(if $(GIVEN),,$(MAKE) --no-print-directory program)
	@scripts/install-test-tools docker-registry valgrind
	@$(PY) -m outrigger_testenv.cost --limits $(if $(ONLY),--only '$(ONLY)')

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

# The part of it that `make demo` needs.
.PHONY: venv-demo
venv-demo: $(DEMO_STAMP)

pip = $(PY) -m pip install --quiet --disable-pip-version-check --no-deps

$(DEMO_STAMP): $(DEMO_LOCK) testenv/pyproject.toml $(PROTOS)
	@[ -x $(PY) ] || $(PYTHON) -m venv $(VENV)
	@$(pip) --requirement $(DEMO_LOCK)
	@PYTHONPATH=testenv/src $(PY) -m outrigger_testenv.stubs
	@$(pip) --no-build-isolation --editable testenv
	@touch $@

$(STAMP): $(DEMO_STAMP) $(LOCK) packages/delta/pyproject.toml
	@echo "python packages: $(LOCK)"
	@$(pip) --requirement $(LOCK)
	@$(pip) --no-build-isolation --editable packages/delta
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
tools: ## docker-registry, skopeo, umoci, buildah, bubblewrap, promtool, chromium and valgrind, if they can be installed
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
