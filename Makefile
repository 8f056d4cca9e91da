# One command for everything: make check
PYTHON ?= .venv/bin/python

.PHONY: check lint test bench schema
check: lint test
lint:
	$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && $(PYTHON) -m mypy
test:
	$(PYTHON) -m pytest -n auto --dist worksteal
bench:
	$(PYTHON) benchmarks/bench_analyze.py
schema:
	$(PYTHON) -c "import json; from npuperf.render.json import result_schema; print(json.dumps(result_schema(), indent=1))" > npuperf/render/result.schema.json
	$(PYTHON) -c "import json; from npuperf.render.tuning_text import tuning_schema; print(json.dumps(tuning_schema(), indent=1))" > npuperf/render/tuning.schema.json
