# One command for everything: make check
PYTHON ?= .venv/bin/python

N ?= 1000
OUT ?= fuzz-found
MOMENTS ?= 50
SECONDS ?= 600

TOOLS = dist/tools
MACHINES ?= aarch64 x86_64
PYTHONS ?= 3.10 3.11 3.12 3.13 3.14

.PHONY: lock wheels wheelhouse image aarch64 matrix man release check lint test bench costs schema messages day house fuzz kill signals chaos same mutants
check: lint test
lint:
	$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && $(PYTHON) -m mypy
test:
	$(PYTHON) -m pytest -n auto --dist worksteal
bench:
	$(PYTHON) benchmarks/bench_analyze.py
costs:
	$(PYTHON) -m pytest tests/test_costs.py --update
schema:
	$(PYTHON) -m npuperf.model.schema
messages:
	$(PYTHON) languages.py
day:  # draws docs/pictures/first_day*.svg: the commands of docs/first-day.md, as a terminal shows them
	$(PYTHON) tools/first_day.py
house:
	$(PYTHON) tests/house.py
fuzz:  # N attempts from SEED on; what fails is kept below OUT; CASE=torch_db/17 repeats one
	$(PYTHON) tests/fuzz/attack.py --count $(N) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) --out $(OUT) $(if $(KINDS),--kinds $(KINDS)) $(if $(CASE),--case $(CASE))
kill:  # npuperf is killed at MOMENTS random moments of each verb that runs for long; what is lost is said
	$(PYTHON) tests/fuzz/kill_profile.py --moments $(MOMENTS) $(if $(SEED),--seed $(SEED))
	$(PYTHON) tests/fuzz/kill_tune.py --moments $(MOMENTS) $(if $(SEED),--seed $(SEED))
signals:  # programs that are recorded get signals at MOMENTS random moments, and end as they do without; SPAWNED=1: spawned engines
	$(PYTHON) tests/fuzz/send_signals.py --moments $(MOMENTS) $(if $(SEED),--seed $(SEED)) $(if $(NPU),--npu) $(if $(SPAWNED),--spawned)
chaos:  # random faults of the machine while random commands run, for SECONDS or RUNS, from SEED on; ONLY='text/*'
	nice $(PYTHON) tests/chaos/chaos.py --seconds $(SECONDS) $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only '$(ONLY)')
same:  # everything that is said, held against another revision, REV or that of tests/same/same.py; QUICK=1: a part of it
	$(PYTHON) tests/same/same.py $(if $(REV),--against $(REV)) $(if $(QUICK),--quick) $(if $(ONLY),--only '$(ONLY)')
mutants:  # a room's code is changed in N places (50), each alone, drawn by SEED: do its tests notice? ROOM=job
	$(PYTHON) tests/mutants/mutants.py $(ROOM) $(if $(filter command line,$(origin N)),--count $(N)) $(if $(SEED),--seed $(SEED))

# What is built for others: with tools of its own, in exact versions, whatever .venv is; python3 is 3.10 or newer
$(TOOLS)/made: tools/requirements.txt tools/lock.txt
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 10) and "python3 on PATH is older than 3.10")'
	python3 -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install -q -c tools/lock.txt -r tools/requirements.txt
	touch $@
lock: $(TOOLS)/made  # the newest versions of all that tests, checks, builds and releases, for every Python; torch pins CUDA's
	$(TOOLS)/bin/uv pip compile -q --upgrade --universal --python-version 3.10 --no-header --no-annotate --extra dev \
		pyproject.toml tools/requirements.txt -o dist/lock.txt
	(echo "# What tests, checks, builds and releases npuperf, exactly, for Python 3.10 to 3.14; made by: make lock"; \
		grep -vE '^(nvidia-|cuda-|triton)' dist/lock.txt) >tools/lock.txt
wheels: $(TOOLS)/made  # every wheel and the source distribution, into dist/; ONLY='aarch64' builds a part
	$(TOOLS)/bin/python tools/wheels.py $(ONLY)
wheelhouse: $(TOOLS)/made  # after wheels: one tar with all that a machine without a network needs
	$(TOOLS)/bin/python tools/wheelhouse.py --machines "$(MACHINES)" --pythons "$(PYTHONS)" --tar
aarch64: $(TOOLS)/made  # what tests/test_wheels.py runs under qemu-aarch64
	$(TOOLS)/bin/python tools/wheels.py manylinux2014_aarch64
	bash tools/aarch64.sh dist/aarch64 $(TOOLS)/bin/python
image:  # after wheels, and wheelhouse PYTHONS=3.11: the Dockerfile of recipes/ci, built and tried (root, debootstrap, buildah)
	bash tools/image.sh dist
matrix: $(TOOLS)/made  # after wheels: every Python, with the oldest and the newest of what npuperf needs
	$(TOOLS)/bin/python tools/matrix.py --pythons "$(PYTHONS)"
man:
	$(PYTHON) tools/man.py
release: $(TOOLS)/made  # of a tagged commit: checks, builds, bill of materials, checksums; pushes nothing
	$(TOOLS)/bin/python tools/release.py
