# Everything below needs Python 3.11 or newer and make; `make venv` installs the rest, as locked.
PYTHON ?= python3
JOBS   ?= 3
FACTOR ?= 50
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.demo $(VENV)/.ready
QUICK  := $(CORE) $(VENV)/.quick
READY  := $(CORE) $(VENV)/.dev
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Tests start hundreds of processes, and each would compile the package for itself.
unexport PYTHONDONTWRITEBYTECODE

LOCK   := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet

.PHONY: bench bench-gate demo docs figures fuzz golden lint lock paper peers quick recipes release-check schema test test-all types venv

demo:                     ## run the shipped example: table and report.html
	@$(MAKE) --no-print-directory --silent -j2 $(CORE)
	$(BIN)/streamcal demo

# Without Kafka, Spark and a browser, whose packages are not installed for it.
ABSENT := tests/connectors/kafka tests/spark tests/monitor/screenshot.py streamcal/spark \
	connectors/streamcal_connectors/kafka

quick: $(QUICK)           ## run the fast tests, in a minute
	$(BIN)/python -m pytest -n $(JOBS) --hypothesis-profile=quick $(addprefix --ignore=,$(ABSENT)) \
		-m "not (statistical or kafka or spark or browser or crash or slow or nightly)"

test: $(READY)            ## run the tests that a change must pass
	$(BIN)/python -m pytest -n $(JOBS)

test-all: $(READY)        ## run all tests, the nightly ones, too
	$(BIN)/python -m pytest -n $(JOBS) --hypothesis-profile=night -m ""

fuzz: $(READY)            ## fuzz every decoder, 900 times as much as the tests do, in half an hour; FACTOR=0.05 as they do
	$(BIN)/python -m tests.fuzz --factor $(FACTOR) --jobs $(JOBS)

paper: $(READY)           ## reproduce the paper: pictures and tables of docs/paper.md
	$(BIN)/python examples/paper/reproduce.py

figures: $(READY)         ## draw the pictures of docs/ anew, and fill the tables beside them
	for page in recalibration label_shift certificates drift operations late_labels llm_judge months; do \
		$(BIN)/python docs/figures/$$page.py || exit 1; done

golden: $(READY)          ## write anew what later versions must read: tests/golden; refused once this one is released
	$(BIN)/python -m tests.golden.write

release-check: $(CORE)    ## build what a release has, twice, and try it out; COMMIT=v0.1.0 for a tag
	.ci/release $(COMMIT)

docs: $(READY)            ## build the site into build/site, strictly: open build/site/index.html
	$(BIN)/python -m sphinx -q -E -W --keep-going -c docs -d build/doctrees . build/site

bench: $(READY)           ## answer the eight questions of docs/benchmarks.md; hours
	$(BIN)/python -m benchmarks

bench-gate: $(READY)      ## fail if a hot path takes more than 1.3 times the instructions that it did; needs valgrind
	$(BIN)/python benchmarks/gate.py

peers: $(CORE) build/peers/.ready   ## compare with the calibrators of other packages: ten minutes, 6 GB
	PYTHONPATH=$(CURDIR) build/peers/bin/python -m benchmarks.peers --write --jobs 2

recipes: $(CORE) build/recipes/.ready   ## run examples/recipes against the real things; needs prometheus
	rm -rf build/recipes/sdist
	$(BIN)/python -m hatchling build -t sdist -d build/recipes/sdist
	STREAMCAL_COMPILE=0 build/recipes/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --force-reinstall build/recipes/sdist/*.tar.gz
	build/recipes/bin/python examples/recipes/run.py

# Environments of others' packages, apart from those of this project.
build/recipes/.ready: examples/recipes/requirements.txt
build/peers/.ready: benchmarks/peers.lock
build/recipes/.ready build/peers/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r $<
	touch $@

lint: $(QUICK)            ## check style, prose and imports; count the lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python .ci/prose.py
	$(BIN)/python .ci/lines.py

types: $(READY)           ## check types, strictly, and that pyright knows all public ones
	$(BIN)/mypy
	$(BIN)/mypy tests/typed_calls.py
	$(BIN)/python .ci/public_types.py

venv: $(READY)

# Compiled modules; a change of them needs no new environment.
COMPILED := $(shell find streamcal -name '*_c.py' -or -name '*_c.pxd')

# What compiles this package, and the package, compiled;
$(VENV)/.ready: $(VENV)/.build .ci/build_hook.py $(COMPILED)
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.build: pyproject.toml requirements/build.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "streamcal needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --require-hashes -r requirements/build.txt
	touch $@

# what `make demo` needs, installed while it is compiled.
# Modules are compiled to byte code when they are first imported: most never are.
$(VENV)/.demo: $(VENV)/.build requirements/demo.txt
	$(PIP) --no-compile --require-hashes -r requirements/demo.txt
	touch $@

# … what a contributor needs for `make quick` and `make lint`,
$(VENV)/.quick: $(VENV)/.demo requirements/quick.txt
	$(PIP) --no-compile --require-hashes -r requirements/quick.txt
	touch $@

# … and all that tests and docs need. `make -j2 venv` installs it while this package is compiled.
$(VENV)/.dev: $(VENV)/.quick requirements/all.txt
	$(PIP) --no-compile --require-hashes -r requirements/all.txt
	touch $@

schema: $(READY)          ## write the JSON schemas of a map and of a report into docs/
	$(BIN)/python -c 'import json, streamcal as s; print(json.dumps(s.RecalibrationMap.model_json_schema(), indent=2))' \
		> docs/recalibration-map.schema.json
	$(BIN)/python -c 'import json, streamcal as s; print(json.dumps(s.MulticlassMap.model_json_schema(), indent=2))' \
		> docs/multiclass-map.schema.json
	$(BIN)/python -c 'import json, msgspec; from streamcal.monitor.report import Report; \
		print(json.dumps(msgspec.json.schema(Report), indent=2))' > docs/report.schema.json

lock:                     ## work out the files of locked requirements anew (needs uv)
	$(LOCK) --extra dev --extra docs --group build pyproject.toml -o requirements/all.txt
	$(LOCK) --extra quick --group build -c requirements/all.txt pyproject.toml -o requirements/quick.txt
	$(LOCK) --group build -c requirements/all.txt -o requirements/build.txt
	$(LOCK) --extra plots --group build -c requirements/all.txt pyproject.toml -o requirements/demo.txt
	$(LOCK) --extra kafka --extra objects --extra parquet --extra plots --extra serve \
		-c requirements/all.txt pyproject.toml -o requirements/image.txt
	$(LOCK) pyproject.toml examples/recipes/requirements.in -o examples/recipes/requirements.txt
	$(LOCK) pyproject.toml benchmarks/peers.in -o benchmarks/peers.lock
