# One command for everything: make check
PYTHON ?= .venv/bin/python

.PHONY: check lint test bench costs schema messages
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
	$(PYTHON) -m npuperf.documents.schema
messages:
	$(PYTHON) -m npuperf.render.gathering
