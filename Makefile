# One command for everything: make check
PYTHON ?= .venv/bin/python

.PHONY: check lint test bench schema messages
check: lint test
lint:
	$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && $(PYTHON) -m mypy
test:
	$(PYTHON) -m pytest -n auto --dist worksteal
bench:
	$(PYTHON) benchmarks/bench_analyze.py
schema:
	$(PYTHON) -m npuperf.documents.schema
messages:
	$(PYTHON) -m npuperf.render.gathering
