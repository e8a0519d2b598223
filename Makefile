# octorec: `make train` is the first five minutes, `make test` is what CI runs.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
NEXTEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes)

.PHONY: train build test checks format lint docs unit unit-library unit-tests unit-docs loom collectives campaign figures mlperf-small bench bench-data clean system test-mpi test-mpich test-numa test-export valgrind mutants

# Trains on the built-in click log and ends with the test AUC.
train: build
	$(TARGET)/release/octorec train $(ARGS)

# With MPI=1 for jobs of several machines.
build: system
	$(CARGO) build --release --locked $(if $(MPI),--features mpi)

# Checks build every optional feature; `build` none.
test: checks unit
checks: system format lint docs
test checks campaign valgrind test-mpi: MPI = 1
test-mpi: HOSTS = 1

format:
	$(CARGO) fmt --check

lint:
	$(CARGO) clippy --locked --all-targets --all-features -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --all-features --no-deps --document-private-items

# The library's own tests need a library that is compiled for them alone: without optimisation, in a fifth of the time.
# The other tests, which train, share an optimised one. nextest runs no doctests, so cargo runs those.
unit: unit-library unit-tests unit-docs
TESTS := $(CARGO) $(if $(NEXTEST),nextest run,test) --locked --all-features --no-fail-fast
unit-library:
	$(TESTS) --lib --config profile.dev.package.octorec.opt-level=0
unit-tests:
	$(TESTS) --bins --test '*'
unit-docs:
	$(CARGO) test --locked --all-features --doc

# Interleavings of the thread protocols with few preemptions: as many as a wrong order of two accesses needs; all of them
# take minutes a model. LOOM_MAX_PREEMPTIONS=99 tries them. With LOOM_SECONDS=n models that take longer fail.
LOOM := RUSTFLAGS="--cfg loom" $(CARGO) test --locked --profile loom --target-dir $(TARGET)/loom --lib
loom:
	$(LOOM) --no-run
	LOOM_MAX_PREEMPTIONS=$(or $(LOOM_MAX_PREEMPTIONS),3) $(if $(LOOM_SECONDS),timeout $(LOOM_SECONDS)) env $(LOOM) models

# 10,000 randomised rounds of every collective, with delays.
collectives:
	$(CARGO) test --locked --test ranks collective:: -- --ignored --nocapture

# Kills, damage, full disks, limits and hostile files in random order for MINUTES, and a table of what was done; every
# broken promise comes with the command that repeats it: the same SEED with CASE=n.
MINUTES ?= 30
campaign: system
	MINUTES="$(MINUTES)" SEED="$(SEED)" CASE="$(CASE)" \
		$(CARGO) test --locked --all-features --test cli campaign -- --ignored --nocapture

# octorec on an emulated machine with eight NUMA nodes; says that it is skipped where that cannot be emulated.
test-numa: system
	CARGO="$(CARGO)" tests/numa/run

# Jobs of several machines: processes that mpirun starts on this host, and two hosts of network namespaces, one of which
# is killed KILLS times; says that it is skipped where these cannot be made.
KILLS ?= 50
test-mpi: system
	$(CARGO) test --locked --all-features --test cli mpi::
	tests/mpi/run $(TARGET)/debug/octorec $(KILLS)

# The same jobs on this host with MPICH instead of Open MPI, where both are installed (Debian: libmpich-dev, mpich).
test-mpich:
	MPICC=mpicc.mpich MPIRUN=mpirun.mpich $(CARGO) test --locked --all-features \
		--target-dir $(TARGET)/mpich --test cli mpi::

# Exported models in onnxruntime and PyTorch against `predict`, on 10,000 rows; by a Python that has both and NumPy. `make unit`
# does so on 1,000 rows where OCTOREC_PYTHON, or python3, has them.
OCTOREC_PYTHON ?= python3
test-export: build
	$(OCTOREC_PYTHON) tests/export/check.py $(TARGET)/release/octorec --require onnxruntime torch

# A tiny training of two ranks under valgrind, which must find nothing. PROFILE=dev takes the binary that tests use.
PROFILE ?= release
valgrind: system
	$(CARGO) $(if $(filter dev,$(PROFILE)),test --no-run --test cli --all-features,build --profile $(PROFILE)) --locked
	tests/valgrind/run $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/octorec

# Whether tests notice changed code: of the lines that differ from BASE, or with SAMPLE=n SEED=s of n mutants drawn from
# the arithmetic. Minutes a mutant.
mutants: system
	CARGO="$(CARGO)" .ci/mutants "$(BASE)" "$(SAMPLE)" "$(SEED)"

# The figures of the SC20 paper, simulated, with their numbers, into FIGURES.
FIGURES ?= figures
figures: build
	$(TARGET)/release/octorec simulate sc20 --out "$(FIGURES)"

# MLPerf's run in small, in minutes: a thousandth of a day of a generated log, of tables capped at 40,000 rows, is preprocessed
# and trained to a target AUC; the log and the time to train are told. All of it goes to MLPERF, a folder of this target's own:
# what it has made there before is replaced. Make's own errors refuse other folders, as `make -i` goes on after those of commands.
MLPERF ?= mlperf-small
MLPERF_TAKEN = $(shell test -f "$(MLPERF)/.mlperf-small" || test ! -e "$(MLPERF)" || ls -A "$(MLPERF)" 2>&1)
mlperf-small: build
	$(if $(strip $(MLPERF)),,$(error MLPERF names no folder: make mlperf-small MLPERF=DIR, or leave it away))
	$(if $(MLPERF_TAKEN),$(error $(MLPERF) holds what is not of mlperf-small: make mlperf-small MLPERF=DIR with a new folder, or remove it))
	to="$(MLPERF)" && mkdir -p "$${to:?}" && touch "$$to/.mlperf-small" && rm -rf "$${to:?}/raw" "$${to:?}/blocks" "$${to:?}/run"
	$(TARGET)/release/octorec data generate "$(MLPERF)/raw" --text --preset mlperf-v1 --rows-cap 40000 \
		--set data.train_samples=182400 --set data.test_samples=40000
	$(TARGET)/release/octorec preprocess criteo-terabyte --in "$(MLPERF)/raw/day_0" "$(MLPERF)/raw/day_1" \
		--out "$(MLPERF)/blocks" --split last-day-dlrm
	$(TARGET)/release/octorec train --preset mlperf-v1 --data "$(MLPERF)/blocks" --batch 256 --epochs 1 --lr 0.5 \
		--set train.warmup_steps=50 --set train.decay_start=350 --set train.decay_steps=363 --set train.eval_batch=4096 \
		--target-auc 0.69 --mllog "$(MLPERF)/result_0.txt" --out "$(MLPERF)/run" --json > "$(MLPERF)/results.json"
	grep -e run_start -e eval_accuracy -e run_stop "$(MLPERF)/result_0.txt"

bench: build
	$(CARGO) bench --locked

# 5 GB (or GB=n) of generated text to blocks: speed and peak memory. Takes three times that on disk; not part of CI.
bench-data: build
	$(CARGO) bench --locked --bench preprocess -- --gb $(or $(GB),5) $(ARGS)

clean:
	$(CARGO) clean

system:
	@.ci/system-packages $(if $(MPI),mpi) $(if $(HOSTS),hosts)
