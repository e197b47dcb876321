# Every target makes its own environment on first use (scripts/with_env.sh): Python packages in .venv, Java if needed.
# SPARK=4.3 for another PySpark than 4.2.0, in .venv-4.3; also 4.0 and 4.1.

SEEDS ?= 10000
PYTEST_ARGS ?=
DEV := scripts/with_env.sh dev
UNIT := scripts/with_env.sh dev --mariadb --kafka --iceberg-rest
SMOKE := python -m pytest -n 2 --dist loadfile -m "smoke and not soak" tests/docs tests/plan tests/spark
TEST := scripts/with_env.sh dev --delta-jars --mariadb --kafka --iceberg-rest --chromium --prometheus

.DEFAULT_GOAL := help
.PHONY: help demo payments test matrix soak unit simulate explore mutants bench lint format docs changelog site clean

help:  ## this text
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

demo:  ## stream 336,776 flights, kill the driver, go on, compare with a batch computation; STORAGE=s3: on S3
	@scripts/with_env.sh $(if $(STORAGE),demo_$(STORAGE),demo) python -m examples.flights.demo $(STORAGE)

payments:  ## payments from Kafka into Kafka, PostgreSQL and Delta; starts the servers, kills the driver, compares
	@scripts/with_env.sh dev --kafka python -m examples.payments.demo

test: $(if $(SPARK),,lint)  ## everything: lint, types, all tests, and some again on PySpark 4.3; SPARK=4.3: all tests on that, 4.0 or 4.1: some
ifneq ($(filter 4.0% 4.1%,$(SPARK)),)
	@$(DEV) $(SMOKE) $(PYTEST_ARGS)
else
	@$(TEST) python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)
endif
ifeq ($(SPARK)$(PYTEST_ARGS),)
	@SPARK=4.3 $(DEV) $(SMOKE)
endif

matrix:  ## every night: the tests on PySpark 4.0, 4.1, 4.2 and 4.3, and jobs that go from one to the other
	@$(MAKE) test
	@for spark in 4.0 4.1 4.3; do $(MAKE) test SPARK=$$spark || exit 1; done
	@$(DEV) python -m tests.across_sparks .venv-4.0 .venv-4.1 .venv .venv-4.3

soak:  ## what takes hours: more examples, more kills; before a release
	@EXAMPLES=20 $(TEST) --minio --registry --s3a python -m pytest -m "soak or more or hypothesis" --timeout 14400 $(PYTEST_ARGS)

unit:  ## only the tests that need no Spark
	@$(UNIT) python -m pytest tests/config tests/protocol tests/state tests/storage tests/sinks $(PYTEST_ARGS)

simulate:  ## the seeded simulation: make simulate SEEDS=100000, or SEED=17 to replay one
	@$(DEV) python -m spark_ckpt.testing.simulate $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

explore:  ## every interleaving of small jobs, with a crash anywhere; hours
	@$(DEV) python -m spark_ckpt.testing.explore

mutants:  ## break one rule at a time, in any room; a test must notice. ONLY=text for some
	@$(DEV) python scripts/mutants.py $(if $(ONLY),--only "$(ONLY)")

bench:  ## all benchmarks and their peers, an hour and a quarter; writes benchmarks/RESULTS.md. ONLY=keyed,small for some
	@scripts/with_env.sh dev --kafka python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(BENCH_ARGS)

lint:  ## ruff, the layering of the packages, mypy
	@$(DEV) ruff check .
	@$(DEV) ruff format --check .
	@$(DEV) mypy

format:  ## let ruff rewrite the code
	@$(DEV) ruff check --fix .
	@$(DEV) ruff format .

docs:  ## write the generated parts of docs/
	@$(DEV) python scripts/config_docs.py
	@$(DEV) python scripts/site_docs.py

changelog:  ## put changes/ into CHANGELOG.md: make changelog VERSION=0.2.0
	@$(DEV) towncrier build --version $(VERSION)

site:  ## the documentation as a site in build/site; broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(DEV) mkdocs build --strict
	@echo "open file://$(CURDIR)/build/site/index.html"

clean:  ## remove everything the other targets made
	rm -rf .venv .venv-* .demo .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info spark-warehouse metastore_db
