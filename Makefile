# octorec: `make train` is the first five minutes, `make test` is what CI runs.

CARGO ?= cargo
NEXTEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes)

.PHONY: train build test format lint docs unit loom collectives bench bench-data clean system test-numa valgrind mutants

# Trains on the built-in click log and ends with the test AUC.
train: build
	target/release/octorec train $(ARGS)

build: system
	$(CARGO) build --release --locked

# Checks build every optional feature; `build` none.
test: system format lint docs unit

format:
	$(CARGO) fmt --check

lint:
	$(CARGO) clippy --locked --all-targets --all-features -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --all-features --no-deps --document-private-items

# nextest runs no doctests, so cargo runs those in either case.
unit:
ifeq ($(NEXTEST),yes)
	$(CARGO) nextest run --locked --all-features --no-fail-fast
	$(CARGO) test --locked --all-features --doc
else
	$(CARGO) test --locked --all-features --no-fail-fast
endif

# Interleavings of the thread protocols with few preemptions: as many as a wrong order of two accesses needs; all of them
# take minutes a model. LOOM_MAX_PREEMPTIONS=99 tries them. With LOOM_SECONDS=n models that take longer fail.
LOOM := RUSTFLAGS="--cfg loom" $(CARGO) test --locked --profile loom --target-dir $(or $(CARGO_TARGET_DIR),target)/loom --lib
loom:
	$(LOOM) --no-run
	LOOM_MAX_PREEMPTIONS=$(or $(LOOM_MAX_PREEMPTIONS),3) $(if $(LOOM_SECONDS),timeout $(LOOM_SECONDS)) env $(LOOM) models

# 10,000 randomised rounds of every collective, with delays.
collectives:
	$(CARGO) test --locked --test ranks collective:: -- --ignored --nocapture

# octorec on an emulated machine with eight NUMA nodes; says that it is skipped where that cannot be emulated.
test-numa: system
	CARGO="$(CARGO)" tests/numa/run

# A tiny training of two ranks under valgrind, which must find nothing. PROFILE=dev takes the binary that tests use.
PROFILE ?= release
valgrind: system
	$(CARGO) build --locked $(if $(filter dev,$(PROFILE)),--all-features) --profile $(PROFILE)
	tests/valgrind/run $(or $(CARGO_TARGET_DIR),target)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/octorec

# Whether tests notice changed code: of the lines that differ from BASE, or with SAMPLE=n SEED=s of n mutants drawn from
# the arithmetic. Minutes a mutant.
mutants: system
	CARGO="$(CARGO)" .ci/mutants "$(BASE)" "$(SAMPLE)" "$(SEED)"

bench: build
	$(CARGO) bench --locked

# 5 GB (or GB=n) of generated text to blocks: speed and peak memory. Takes three times that on disk; not part of CI.
bench-data: build
	$(CARGO) bench --locked --bench preprocess -- --gb $(or $(GB),5) $(ARGS)

clean:
	$(CARGO) clean

system:
	@.ci/system-packages
