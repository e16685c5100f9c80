# The two commands: `make run` and `make test`. Everything they and the others install stays in .venv, .venv-spark, build
# and the user's caches, except the Debian packages that the test suites need.

PYTHON ?= python3
BIN := .venv/bin
SPARK_VERSIONS ?= 4.0.0 3.5.7
SPARK_JOBS ?=  # all
SPARK_IN_TEST := 4.0.0
SPARK_JOBS_IN_TEST := batch_read headers_and_nulls stream_write available_now
# With a Pulsar, a Kafka and a gateway each, which take some 1.5 GB. They wait much: more than cores.
TEST_PROCESSES ?= 3
TESTS_WITH_SERVERS := tests/integration tests/conformance tests/fuzz
# Java programs here live for seconds: half of their CPU went into optimising what then hardly ran.
SHORT_LIVED_JAVA := JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

.NOTPARALLEL:
.PHONY: run test servers unit faults bench regions fleet security soak transactions spark spark-small conformance clean python packages toolchains

run: .venv/run.stamp  ## Pulsar standalone and the gateway, data in ./data
	@exec $(BIN)/kafka-gateway dev

# `make` instead of $(MAKE) in the recipe, or -n would run it.
# Tests that start servers: each process takes the next file. What failed is named in the last lines of the output.
test: servers  ## Static checks, then tests on a real Pulsar and a real Kafka: all but those of `make faults`
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	@mkdir -p build; rm -f build/servers.code; \
	timeout 2400 make spark-small > build/spark.log 2>&1 & spark=$$!; \
	timeout 2400 make unit > build/unit.log 2>&1 & unit=$$!; \
	trap 'kill $$spark $$unit' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
	echo "beside: mypy and tests/unit (build/unit.log), PySpark jobs (build/spark.log)"; \
	{ $(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --durations 25 $(TESTS_WITH_SERVERS); \
	  echo $$? > build/servers.code; } 2>&1 | tee build/servers.log; \
	servers_code=1; read servers_code < build/servers.code; \
	wait $$unit; unit_code=$$?; wait $$spark; spark_code=$$?; trap - EXIT; cat build/unit.log build/spark.log; \
	grep -ahE '^(FAILED|ERROR) tests|^[a-z_/]+\.py:[0-9]+: error: ' build/servers.log build/unit.log | cut -c -300 | tail -n 8; \
	echo "exit codes: tests with servers $$servers_code, make unit $$unit_code, make spark-small $$spark_code"; \
	exit $$((servers_code | unit_code | spark_code))

servers: packages .venv/test.stamp
	$(BIN)/python -m deploy.local.jars pulsar kafka
	-$(SHORT_LIVED_JAVA) $(BIN)/python -m deploy.local.archive_classes  # without it, tests take longer

unit: .venv/test.stamp  ## Types, and the tests that need no servers: seconds to minutes
	$(BIN)/mypy
	$(BIN)/pytest tests/unit

faults: servers  ## Tests that kill, suspend and cut off servers, kill whole applications, or wait for Pulsar: minutes, most of them waiting
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --durations 25 tests/faults

bench: packages .venv/test.stamp  ## The gateway, Pulsar and Kafka side by side: docs/reports/bench.md
	$(BIN)/python -m tests.bench

regions: packages .venv/test.stamp  ## Whole topologies as local processes, with faults under load: docs/reports/regions.md
	$(BIN)/python -m deploy.local.jars pulsar
	$(BIN)/python -m tests.regions

fleet: packages .venv/test.stamp  ## Deaths of gateways, and what a fleet costs: docs/reports/fleet.md
	$(BIN)/python -m tests.bench.fleet

security: packages .venv/test.stamp  ## What rights and TLS cost, and what tenants feel of each other: docs/reports/security.md
	$(BIN)/python -m tests.bench.security

soak: packages .venv/test.stamp  ## Two hours of mixed load with restarts: docs/reports/soak.md
	$(BIN)/python -m tests.soak

transactions: packages .venv/test.stamp  ## Long trials of transactions: copies of 100,000 records, ten faults of each kind
	$(BIN)/python -m deploy.local.jars pulsar kafka
	COPIER_RECORDS=100000 STREAMS_LINES=20000 TRANSACTION_ROUNDS=10 $(BIN)/pytest tests/faults/test_transactions.py \
	  tests/faults/test_transactional_copier.py tests/faults/test_streams.py

spark: packages $(SPARK_VERSIONS:%=.venv-spark/%/stamp)  ## PySpark jobs on Kafka and on the gateway, the rows compared: docs/reports/spark.md
	@failed=; for version in $(SPARK_VERSIONS); do \
	  echo "Spark $$version"; .venv-spark/$$version/bin/python -m spark_compat $(SPARK_JOBS) || failed=1; done; \
	test -z "$$failed"

spark-small: .venv-spark/$(SPARK_IN_TEST)/stamp  ## Some of them, no times taken: the part of `make test`
	$(SHORT_LIVED_JAVA) .venv-spark/$(SPARK_IN_TEST)/bin/python -m spark_compat --no-report $(SPARK_JOBS_IN_TEST)

conformance: packages toolchains .venv/test.stamp  ## Public clients on Kafka and on the gateway, what they report compared: docs/reports/conformance.md
	$(BIN)/python -m tests.clients

clean:  ## All but ./data
	rm -rf .venv .venv-spark build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv-spark/%/stamp: pyproject.toml | python
	$(PYTHON) -m venv .venv-spark/$*
	.venv-spark/$*/bin/python -m pip install --quiet --editable '.[spark]' pyspark==$*
	.venv-spark/$*/bin/python -m spark_compat.runner.session
	@touch $@

.venv/run.stamp: pyproject.toml | python
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/test.stamp: pyproject.toml | python
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ .venv/run.stamp

python:
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or later with venv is needed (Debian packages python3, python3-venv);" \
	       "another one than $(PYTHON) is named by make PYTHON=…" >&2; exit 1; }

packages:
	@missing=; \
	command -v kcat >/dev/null || missing="$$missing kcat"; \
	command -v haproxy >/dev/null || missing="$$missing haproxy"; \
	command -v javac >/dev/null || missing="$$missing default-jdk-headless"; \
	command -v mvn >/dev/null || missing="$$missing maven"; \
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "The test suite needs these Debian packages:$$missing" >&2; exit 1; fi; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing

toolchains:  # of the clients in other languages; what is missing is reported by the run, client by client
	@missing=; \
	command -v go >/dev/null || missing="$$missing golang-go"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	command -v cargo >/dev/null || missing="$$missing cargo"; \
	command -v cc >/dev/null || missing="$$missing build-essential"; \
	test -e /usr/include/openssl/ssl.h || missing="$$missing libssl-dev pkg-config"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing || true; fi
