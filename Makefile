# make demo · pipeline · look · test · bench · bench-pipeline · bench-history · live · crash · scale · soak · faults · fuzz · fuzz-long ·
# fuzz-packs · powercut · tools · firmware · flash · deploy · test-board · bench-board · docs · release · lint · size · clean
#
# Everything is installed into .venv and build; nothing else on the machine is touched, except that
# mosquitto and node are installed with apt-get where that is allowed, by targets that need them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LINK ?= tcp
SOAK_tcp := 1000000
SOAK_tls := 200000
SOAK_websocket := 200000
MESSAGES ?= $(or $(SOAK_$(LINK)),200000)
FUZZ_SECONDS ?= 60
FUZZ_tcp := 10000000
FUZZ_websocket := 200000
FUZZ_tls := 20000
FUZZ_v5 := 1000000
VERSION ?= 4
PACKETS ?= $(or $(if $(filter 5,$(VERSION)),$(FUZZ_v5)),$(FUZZ_$(LINK)),200000)
# MicroPython is given one changed packet in so many; over TLS it does one case a second.
SHARE ?= $(if $(filter tls,$(LINK)),40,20)
STREAMS ?= 4000
DOCUMENTS ?= 1000000
STUBS := micropython-esp32-stubs==1.28.0.post4 micropython-rp2-stubs==1.28.0.post4 \
  micropython-unix-stubs==1.28.0.post1
STDLIB_STUBS := micropython-stdlib-stubs==1.28.0.post6
# The 32-bit MicroPython that weighs the client; it runs under node.
WASM := @micropython/micropython-webassembly-pyscript@1.27.0

# Installs packages with apt-get where that can be done without asking; fails where it cannot.
define apt_install
if command -v apt-get >/dev/null; then \
	  if [ "$$(id -u)" = 0 ]; then as_root="env"; \
	  elif sudo -n true 2>/dev/null; then as_root="sudo -n env"; fi; \
	fi; \
	[ -n "$$as_root" ] && echo "installing $(1) with apt-get ..." && \
	$$as_root DEBIAN_FRONTEND=noninteractive apt-get update -qq && \
	$$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null
endef

.PHONY: help demo pipeline look test bench bench-pipeline bench-history live crash scale soak faults fuzz fuzz-long fuzz-packs powercut tools \
  firmware flash deploy test-board bench-board docs release lint size clean mosquitto wasm aedes

help:
	@echo "make demo    a board's sketch publishes, this machine receives: a look in a few seconds"
	@echo "make pipeline  200 boards, the ingest, Spark's jobs, the report, in two minutes; BROKER, SPARK_MASTER"
	@echo "make look    the report of that in a browser, as on a phone and on a desk: pictures in build/look"
	@echo "make test    lint, types and every test; WORKERS=0 for a single process"
	@echo "make bench   flatmq beside other clients; writes docs/results.md"
	@echo "make bench-pipeline  broker to Parquet, by part, beside paho-mqtt; writes docs/results.md"
	@echo "make bench-history  refresh, report and restart after 1, 30 and 365 days; writes docs/results.md"
	@echo "make live    a run under 20,000 messages a second, many topics, retained and large messages; writes docs/results.md"
	@echo "make crash   parts of the pipeline are killed at work; rows lost or twice; writes docs/results.md"
	@echo "make scale   what fleets of other sizes need, measured and calculated; writes docs/scale.md"
	@echo "make soak    a million messages each way over a link that breaks; LINK=tls, websocket; writes docs/results.md"
	@echo "make faults  every fault there is a scenario for; writes docs/results.md"
	@echo "make fuzz    hostile bytes, guided by coverage, for FUZZ_SECONDS=60"
	@echo "make fuzz-long  PACKETS=10000000 hostile packets by chance; MINUTES=60 at most; LINK=tls, websocket; VERSION=5; writes docs/results.md"
	@echo "make fuzz-packs  DOCUMENTS=1000000 hostile messages through the pipeline's jobs; writes docs/results.md"
	@echo "make powercut  the spool's power cut at every write; writes docs/results.md"
	@echo "make tools   the flatmq command, with all that it needs for boards, in $(BIN)"
	@echo "make firmware BOARD=pico_w [FIRMWARE=file]  a board's image, in build/; SKETCH, SET=key=value, FLASH_SIZE"
	@echo "make flash BOARD=pico_w   that image goes to the board; PORT where there are several"
	@echo "make deploy BOARD=pico_w  sketch and client go to a board that runs MicroPython; PORT, SKETCH, SET"
	@echo "make test-board  the tests that need a board: BOARD_PORT, BOARD_WIFI, BOARD_BROKER, RESULTS"
	@echo "make bench-board  memory and time on a board beside umqtt.simple: BOARD_PORT, BOARD_WIFI, BOARD_BROKER; writes docs/results.md"
	@echo "make docs    the documentation as a site, in build/site; a broken link is an error"
	@echo "make release the wheel, the sdist, the packages for mip as .mpy, and the notes, in build/release"
	@echo "make size    flash and memory that the client takes, by module and by step; writes docs/results.md"
	@echo "make lint    ruff, mypy, the boards' types, no private access across modules"
	@echo "make clean   removes .venv and what was built"

demo: $(VENV)/demo.stamp
	@$(BIN)/flatmq demo $(if $(READINGS),--readings $(READINGS))

pipeline: $(VENV)/py311.stamp $(VENV)/demo.stamp $(VENV)/pipeline.stamp
	@$(BIN)/flatmq pipeline demo build/pipeline

look: $(VENV)/pipeline.stamp
	@$(BIN)/python host_tests/pipeline/look.py build/pipeline/report.html build/look

# The processes that run the tests, each with brokers of its own; 0 runs all in one.
WORKERS ?= 2

test: mosquitto wasm aedes lint
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

bench: $(VENV)/rigs.stamp mosquitto
	@-$(MAKE) --no-print-directory wasm
	@$(BIN)/python -m flatmq_rigs bench

bench-pipeline: $(VENV)/pipeline.stamp $(VENV)/rigs.stamp mosquitto
	@$(BIN)/python -m flatmq_rigs pipeline-bench --results docs/results.md

crash: $(VENV)/pipeline.stamp $(VENV)/rigs.stamp mosquitto
	@$(BIN)/python -m flatmq_rigs crash --results docs/results.md

live: $(VENV)/pipeline.stamp $(VENV)/rigs.stamp mosquitto
	@$(BIN)/python -m flatmq_rigs live --results docs/results.md

bench-history: $(VENV)/pipeline.stamp $(VENV)/rigs.stamp
	@$(BIN)/python -m flatmq_rigs history build/history --results docs/results.md

scale: pipeline $(VENV)/rigs.stamp
	@$(BIN)/python -m flatmq_rigs scale build/pipeline --document docs/scale.md

# The results keep the figures of the full number, with a broker of ours; all else is a look.
soak: $(VENV)/rigs.stamp mosquitto
	@$(BIN)/python -m flatmq_rigs soak --messages $(MESSAGES) --link $(LINK) \
	  $(if $(BROKER),,$(if $(filter $(SOAK_$(LINK)),$(MESSAGES)),--results docs/results.md))

faults: mosquitto $(VENV)/test.stamp
	@PYTHONPATH=host_tests $(BIN)/python -m faults --results docs/results.md

fuzz: $(VENV)/fuzz.stamp
	@PYTHONPATH=lib:tools:host_tests $(BIN)/python -m hostile.guided --seconds $(FUZZ_SECONDS)

# LINK=tls also breaks STREAMS streams of TLS, between clients and a real broker.
fuzz-long: $(VENV)/test.stamp $(if $(filter tls,$(LINK)),mosquitto)
	@PYTHONPATH=lib:tools:host_tests $(BIN)/python -m hostile.chance --link $(LINK) \
	  --version $(VERSION) --packets $(PACKETS) $(if $(MINUTES),--minutes $(MINUTES)) --device $$(($(PACKETS) / $(SHARE))) --results docs/results.md
	@$(if $(filter tls,$(LINK)),$(BIN)/python host_tests/tls/broken_streams.py \
	  --streams $(STREAMS) --clients 3 --results docs/results.md)

fuzz-packs: $(VENV)/test.stamp $(VENV)/pipeline.stamp
	@PYTHONPATH=lib:tools:host_tests $(BIN)/python -m pipeline.fuzz_packs \
	  --documents $(DOCUMENTS) --spark $$(($(DOCUMENTS) / 20)) --results docs/results.md

powercut: $(VENV)/rigs.stamp
	@$(BIN)/python -m flatmq_rigs powercut

firmware: $(VENV)/image.stamp
	@$(if $(BOARD),,echo "make firmware BOARD=...: one of" $(basename $(notdir $(wildcard firmware/*.toml))) >&2; exit 1)
	@$(BIN)/flatmq image $(BOARD)$(if $(FIRMWARE), --firmware "$(FIRMWARE)")$(if $(SKETCH), --sketch "$(SKETCH)")$(if $(SET), --set "$(SET)")$(if $(FLASH_SIZE), --flash-size $(FLASH_SIZE))

flash: $(VENV)/boards.stamp
	@$(if $(wildcard build/$(BOARD).*),,echo "make flash BOARD=...: make firmware BOARD=... FIRMWARE=... comes first" >&2; exit 1)
	@$(BIN)/flatmq flash $(BOARD) $(firstword $(wildcard build/$(BOARD).*))$(if $(PORT), --port $(PORT))

deploy: $(VENV)/boards.stamp
	@$(if $(BOARD),,echo "make deploy BOARD=...: one of" $(basename $(notdir $(wildcard firmware/*.toml))) >&2; exit 1)
	@$(BIN)/flatmq deploy $(BOARD)$(if $(PORT), --port $(PORT))$(if $(SKETCH), --sketch "$(SKETCH)")$(if $(SET), --set "$(SET)")

tools: $(VENV)/boards.stamp
	@echo "$(BIN)/flatmq is there; '. $(BIN)/activate' puts it on the PATH"

test-board: $(VENV)/test.stamp
	@PYTHONPATH=host_tests $(BIN)/python -m hil$(if $(RESULTS), --results $(RESULTS))

bench-board: $(VENV)/test.stamp
	@PYTHONPATH=host_tests $(BIN)/python -m hil.bench --results $(or $(RESULTS),docs/results.md)

# With --quiet, mkdocs drops the warnings before --strict counts them.
docs: $(VENV)/docs.stamp
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html; the search needs a server: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

release: $(VENV)/release.stamp
	@$(BIN)/python -m flatmq_rigs release build/release

lint: $(VENV)/test.stamp $(VENV)/stubs.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m flatmq_rigs private-access lib tools boards
	@$(BIN)/python -m flatmq_rigs type-check $(VENV)/stubs

# Without node or a network there are no figures of 32 bits, and the table says so.
size: $(VENV)/rigs.stamp
	@-$(MAKE) --no-print-directory wasm
	@$(BIN)/python -m flatmq_rigs size --results docs/results.md

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# A stamp is as new as the last installation of its extra; the sources are used in place.
$(VENV)/%.stamp: pyproject.toml $(VENV)/made.stamp
	@echo "installing what 'make $*' needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

$(VENV)/py311.stamp: $(VENV)/made.stamp
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "the pipeline needs Python 3.11 or later: make clean, then make pipeline PYTHON=..." >&2; exit 1; }
	@touch $@

# Each of them has modules of the same names.
$(VENV)/stubs.stamp: Makefile $(VENV)/made.stamp
	@echo "installing the types of MicroPython's ports into $(VENV)/stubs ..."
	@rm -rf $(VENV)/stubs
	@for stubs in $(STUBS); do \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --target $(VENV)/stubs/$${stubs%%=*} $$stubs $(STDLIB_STUBS) || exit 1; \
	done
	@touch $@

$(VENV)/made.stamp:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) is missing: install Python 3.10 or later, or name it: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "$(PYTHON) is too old: Python 3.10 or later is needed: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make a venv: apt-get install python3-venv (Debian, Ubuntu)" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# A broker for tests, at the versions of its lock file.
aedes: build/aedes/installed.stamp

build/aedes/installed.stamp: host_tests/aedes/package.json host_tests/aedes/package-lock.json
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	  $(call apt_install,nodejs npm) || \
	  { echo "node and npm are missing: install Node.js 20 or later (the tests start the broker aedes)" >&2; exit 1; }; \
	fi
	@echo "installing the broker aedes into build/aedes ..."
	@mkdir -p build/aedes
	@cp $^ build/aedes
	@npm ci --prefix build/aedes --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null
	@touch $@

mosquitto:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"; \
	if [ -n "$$MOSQUITTO" ] || command -v mosquitto >/dev/null; then exit 0; fi; \
	$(call apt_install,mosquitto) && exit 0; \
	echo "mosquitto is missing: apt-get install mosquitto (Debian, Ubuntu) or brew install mosquitto (macOS)" >&2; \
	exit 1

wasm: $(VENV)/wasm.stamp
	@command -v node >/dev/null || { rm $(VENV)/wasm.stamp; $(MAKE) --no-print-directory wasm; }

$(VENV)/wasm.stamp: Makefile $(VENV)/made.stamp
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	  $(call apt_install,nodejs npm) || \
	  { echo "node and npm are missing: apt-get install nodejs npm (Debian, Ubuntu) or brew install node (macOS)" >&2; exit 1; }; \
	fi
	@echo "installing the 32-bit MicroPython into $(VENV)/wasm ..."
	@mkdir -p $(VENV)/wasm
	@npm install --prefix $(VENV)/wasm --no-audit --no-fund --silent $(WASM) >/dev/null || \
	  { echo "npm could not install $(WASM): is there a network?" >&2; exit 1; }
	@touch $@
