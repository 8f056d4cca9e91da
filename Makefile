# One command for everything: make check
PYTHON ?= .venv/bin/python

N ?= 1000
OUT ?= fuzz-found
MOMENTS ?= 50
SECONDS ?= 600

.PHONY: check lint test bench costs schema messages house fuzz kill chaos same mutants
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
house:
	$(PYTHON) tests/house.py
fuzz:  # N attempts from SEED on; what fails is kept below OUT; CASE=torch_db/17 repeats one
	$(PYTHON) tests/fuzz/attack.py --count $(N) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) --out $(OUT) $(if $(KINDS),--kinds $(KINDS)) $(if $(CASE),--case $(CASE))
kill:  # npuperf is killed at MOMENTS random moments of each verb that runs for long; what is lost is said
	$(PYTHON) tests/fuzz/kill_profile.py --moments $(MOMENTS) $(if $(SEED),--seed $(SEED))
	$(PYTHON) tests/fuzz/kill_tune.py --moments $(MOMENTS) $(if $(SEED),--seed $(SEED))
chaos:  # random faults of the machine while random commands run, for SECONDS or RUNS, from SEED on; ONLY='text/*'
	nice $(PYTHON) tests/chaos/chaos.py --seconds $(SECONDS) $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only '$(ONLY)')
same:  # everything that is said, held against another revision, REV or that of tests/same/same.py; QUICK=1: a part of it
	$(PYTHON) tests/same/same.py $(if $(REV),--against $(REV)) $(if $(QUICK),--quick) $(if $(ONLY),--only '$(ONLY)')
mutants:  # a room's code is changed in N places (50), each alone, drawn by SEED: do its tests notice? ROOM=job
	$(PYTHON) tests/mutants/mutants.py $(ROOM) $(if $(filter command line,$(origin N)),--count $(N)) $(if $(SEED),--seed $(SEED))
