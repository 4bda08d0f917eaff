# make demo and make test do all the set-up they need on a fresh Debian or Ubuntu machine.
.DEFAULT_GOAL := help
# Without bytecode, each start of the command takes half a second more: in tests, and in figures beside installed peers.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := .venv/bin/python -m pytest
WALKS := 50
CHAINS := 50
SEED := 1
RELEASE := 2025.2
CELLS := 1000
TEST := prepare
COUNT := 5000
RELEASES := 2025.2 2026.2
UNIT_PACKAGES := bubblewrap openssh-server openssh-client pciutils pci.ids kmod cpio zstd lz4 lzop bzip2 xz-utils groff-base fish zsh
# Programs of these are run from the cache: an installation would start a service.
UNPACKED := prometheus cloud-init python3-configobj python3-six grub-common
TEST_PACKAGES := $(UNIT_PACKAGES) mariadb-server-core mariadb-client-core postgresql
SLOW := tests/unit/playbooks tests/unit/examples/test_boot.py \
	tests/unit/novadb/test_heads.py $(addprefix tests/unit/repair/test_,killed.py cloud.py playbook.py)
PARTS := tests/nova/embedded/test_database.py tests/unit/connect/ssh/test_connection.py::test_the_same_facts_as_on_the_host_itself \
	tests/unit/linux/test_initramfs.py tests/unit/prepare/host/test_real_tools.py \
	tests/unit/playbooks/test_verify.py::test_a_prepared_host_passes_and_is_not_touched \
	tests/nova/embedded/test_nova.py::test_nova_manage_finds_its_cells

CLEANUP_ON_SERVERS := $(addprefix tests/nova/cleanup/test_,by_hand.py cells_of_nova.py leaks.py live.py \
	one_time_use.py placement.py reports.py virtual.py)

# make lab TEST=NAME runs LAB_NAME. A host in emulation is slow: the default, which is part of CI, may run twice.
LAB_prepare := $(PYTEST) --reruns 1 tests/lab/test_prepare.py -k "not amd"
LAB_amd := $(PYTEST) tests/lab/test_prepare.py -k amd
LAB_dracut := $(PYTEST) tests/lab/test_dracut.py -k this-host
LAB_dracut-any-host := $(PYTEST) tests/lab/test_dracut.py -k any-host
LAB_systemd-boot := $(PYTEST) tests/lab/test_systemd_boot.py
LAB_next-boot := $(PYTEST) tests/lab/test_next_boot.py
LAB_cloud := $(PYTEST) tests/lab/test_cloud.py -k "not debian13"
LAB_cloud-debian13 := $(PYTEST) tests/lab/test_cloud.py -k debian13
LAB_cloud-migration := $(PYTEST) tests/lab/test_cloud_migration.py
LAB_cloud-drain := $(PYTEST) tests/lab/test_cloud_drain.py
LAB_sriov := $(PYTEST) tests/lab/test_virtual_functions.py
LAB_bench := .venv/bin/python bench/lab/prepare.py
LAB_all := $(PYTEST) tests/lab
$(foreach test,addresses bars cleanup debian13 live trial faults guest health mdev mishaps handmade states,$(eval LAB_$(test) := $(PYTEST) tests/lab/test_$(test).py))
LAB := $(patsubst LAB_%,%,$(filter LAB_%,$(.VARIABLES)))

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 17

demo: ## example hosts prepared, a real Nova, flavors, a quota, an instance, a leak repaired; two minutes after set-up
	@tools/setup
	@.venv/bin/python -m gpustack_demo.examples.demo

demo-full: ## the same with more hosts, each step explained, and each output complete; some minutes
	@tools/setup
	@.venv/bin/python -m gpustack_demo.examples.demo --full

test: test-ready test-unit test-nova ## unit tests, then the tests against real Nova and real databases

test-packages:
	@tools/setup --room
	@tools/setup test
	@tools/setup --apt $(TEST_PACKAGES)
	@tools/setup --unpack $(UNPACKED)

test-ready: test-packages
	@tools/setup --nova $(RELEASES)
	@.venv/bin/python -m gpustack_demo.embedded.glance $(lastword $(RELEASES)) # other releases: when a test needs it
	@.venv/bin/python tests/support/deployers.py >/dev/null

# The plays keep a processor busy; half of the other tests' time is waiting, so two more workers share the second one.
test-unit: ## the unit tests alone, which need no Nova and no database server
	@tools/setup test
	@tools/setup --apt $(UNIT_PACKAGES)
	@tools/setup --unpack $(UNPACKED)
	$(PYTEST) -n 3 --dist worksteal tests/unit

# A test waits for Nova a third of its time, so three workers keep two processors busy.
test-nova: test-ready ## the tests against real Nova and real databases alone
	$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder --reruns 1 tests/nova

test-all: ## make test with every test on each release of Nova, where make test chooses one for each
	GPUSTACK_NOVA_RELEASES="$(RELEASES)" $(MAKE) test

test-quick: ## while you work: the unit tests without the slow ones; under two minutes
	@tools/setup test
	$(PYTEST) -n 2 --dist worksteal -q $(addprefix --ignore=,$(SLOW)) tests/unit

test-parts: test-ready ## one test of each real part: databases, sshd, initramfs tools, Ansible, Nova of each release
	$(PYTEST) $(PARTS)

fresh: ## the README's commands on bare Debian 12 and 13, as root and as a user; hours, minutes with QUICK=1
	@tests/fresh/run $(if $(QUICK),--quick)

browser: ## the page of gpustack report in Chromium, at the width of a phone and of a desktop
	@tools/setup test
	@tools/setup --apt chromium
	$(PYTEST) tests/browser

image-proof: ## playbooks/image.yml in real root file systems of Debian 13: a driver that builds, and one that does not
	@tools/setup test
	@tools/setup --apt mmdebstrap debian-archive-keyring
	$(PYTEST) -s tests/image

image-parts: offline # the bundle and the programs of which images are made
	@tools/setup --apt mmdebstrap debian-archive-keyring buildah crun

images: image-parts ## container image and execution environment, built on a root of Debian 13 with buildah, and a host's part of a day inside
	@tools/setup test
	$(PYTEST) -s tests/images

day: offline ## a user's day from the artifacts alone, in fresh roots of Debian without network; SUITE=trixie runs one suite
	@tools/setup test
	@tools/setup --apt mmdebstrap debian-archive-keyring iproute2
	SUITE="$(SUITE)" $(PYTEST) -s tests/day

soak: ## a thousand cycles of clean-up beside a working Nova, and 500 rounds of gpu watch
	@tools/setup test
	GPUSTACK_SOAK_CYCLES=1000 $(PYTEST) tests/nova/cleanup/test_soak.py
	GPUSTACK_SOAK_ROUNDS=500 $(PYTEST) tests/unit/cli/test_gpu_watch.py -k months

states: ## GPUs out of service, and who may boot where, in random states of real Nova of both releases
	@tools/setup test
	GPUSTACK_SERVICE_STEPS=40 GPUSTACK_SERVICE_MACHINES=3 $(PYTEST) tests/nova/fleet/test_states.py
	GPUSTACK_NOVA_RELEASES="2025.2 2026.2" GPUSTACK_TENANCY_STATES=20 $(PYTEST) tests/nova/tenancy

cleanup-servers: ## every leak of clean-up's tests, and each kill, with Nova's databases on MariaDB and PostgreSQL; hours
	@tools/setup test
	@tools/setup --apt $(TEST_PACKAGES)
	@for databases in "mariadb postgresql" "postgresql mariadb"; do \
		GPUSTACK_CLEANUP_DATABASES="$$databases" GPUSTACK_NOVA_RELEASES="$(RELEASES)" \
			$(PYTEST) -n 2 --dist loadfile --reruns 1 $(CLEANUP_ON_SERVERS) || exit 1; \
	done
	GPUSTACK_KILLS=each $(PYTEST) -n 2 tests/nova/cleanup/test_server_faults.py -k killed

walks: ## clean-up after random walks over Nova's operations and failures, new ones each time; an hour, less with WALKS=10
	@tools/setup test
	GPUSTACK_WALKS=$(WALKS) $(PYTEST) -s tests/nova/cleanup/test_walks.py

explore: ## clean-up in each state at the commits of chains on a real Nova; CHAINS=50 (fewer from STATES=n on), SEED=n RELEASE=2025.2, judged ON=mariadb; and in small cells
	@tools/setup test
	GPUSTACK_EXPLORE=$(CHAINS) GPUSTACK_SEED=$(SEED) GPUSTACK_NOVA_RELEASES=$(RELEASE) GPUSTACK_EXPLORE_ON=$(ON) GPUSTACK_EXPLORE_STATES=$(STATES) \
		GPUSTACK_EXPLORED=explored-$(RELEASE)-$(SEED).md $(PYTEST) -s tests/nova/cleanup/test_explore.py
	GPUSTACK_CELLS=$(CELLS) GPUSTACK_SEED=$(SEED) $(PYTEST) -n 2 -q tests/unit/repair/test_evidence_rule.py

why: ## capacity compared with Nova's own code: PAIRS=2000 hosts and flavors from SEED=n, on RELEASES; and real boots
	@tools/setup test
	@tools/setup --nova $(RELEASES)
	GPUSTACK_WHY=$(or $(PAIRS),2000) GPUSTACK_SEED=$(SEED) GPUSTACK_NOVA_RELEASES="$(RELEASES)" \
		$(PYTEST) tests/nova/capacity

changes: ## faults at each point of a run of cloud apply, on real services; hours, less with POINTS=5 of each kind
	@tools/setup test
	@tools/setup --nova $(RELEASES)
	GPUSTACK_CHANGES=$(or $(POINTS),all) GPUSTACK_NOVA_RELEASES="$(RELEASES)" $(PYTEST) -s -p no:logging tests/nova/changes

lab: ## a host in QEMU: real kernel, GRUB, initramfs, IOMMU and vfio; TEST=all or one of tests/lab/README.md
	@$(if $(LAB_$(TEST)),,$(error TEST=$(TEST) is not one of: $(sort $(LAB))))
	@tools/setup test
	@tests/lab/setup $(if $(filter cloud% mdev all,$(TEST)),cloud)
	PYTEST_ADDOPTS="-o faulthandler_timeout=3600" $(LAB_$(TEST))

branches: ## the conditions of the playbooks that no test of them takes in both ways; an hour, less with ONLY="tests/unit/playbooks/test_nova.py"
	@rm -f .venv/branches
	-@GPUSTACK_BRANCHES=$(CURDIR)/.venv/branches ANSIBLE_CALLBACKS_ENABLED=branches \
		ANSIBLE_CALLBACK_PLUGINS=$(CURDIR)/tests/support/callbacks $(PYTEST) -q \
		$(or $(ONLY),tests/unit/playbooks tests/unit/attacks tests/unit/repair/test_playbook.py tests/nova/maintenance)
	@.venv/bin/python tools/branches .venv/branches

slices: ## plans of 200 hosts in 1, 4 and 7 jobs of ansible-runner, joined, beside the plan of one controller
	@tools/setup test runner
	$(PYTEST) -n 2 tests/slices

attacks: ## every playbook as the documentation prints it, and on hostile hosts, with the lowest and the newest ansible-core
	@GPUSTACK_ATTACKS=1 .venv/bin/python -m pytest -q tests/unit/attacks tests/unit/playbooks/test_printed_commands.py tests/unit/repair/test_playbook.py

.PHONY: fuzz
fuzz: ## damaged input for every reader, each case in a child with limits: MINUTES=30, SEED=n
	@.venv/bin/python tools/fuzz --minutes $(or $(MINUTES),30) $(if $(findstring command,$(origin SEED)),--seed $(SEED))

mutants: ## changes of single lines that no test notices: PACKAGE=offer/quota or SINCE=COMMIT; SAMPLE=N makes only N changes, by SEED
	@tools/setup test
	@.venv/bin/python tools/mutants $(if $(PACKAGE),--package $(PACKAGE),--since $(or $(SINCE),$(error set PACKAGE or SINCE))) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

lint: ## ruff, mypy, ansible-lint, codespell, and the words that documentation, help and findings avoid
	@tools/setup lint docs test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/ansible-lint --offline -q
	.venv/bin/codespell
	.venv/bin/zizmor --quiet --offline --min-severity medium .github/workflows
	$(PYTEST) -q tests/unit/test_words.py

docs: ## the documentation, into docs/_build/html; warnings and dead links are errors
	@tools/setup docs
	.venv/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	.venv/bin/python tools/links docs/_build/html

lock: ## new versions and hashes in tools/locks; review the difference, then run make audit
	@tools/setup release
	@.venv/bin/python tools/lock

nova-tables: ## gpustack/data/nova from the source of each release of Nova on PyPI; CHECK=1 fails if a file differs
	@tools/setup test
	.venv/bin/python tools/nova-tables $(if $(CHECK),--check)

signs: ## the table of signs in kernel logs, from SOURCES (unpacked packages and clones); CHECK=1 only compares
	tools/signs $(SOURCES) $(if $(CHECK),--check)
	.venv/bin/python tools/driver-tables $(SOURCES) $(if $(CHECK),--check)

nova-differential: ## lint against Nova's own code on generated configurations of each installed release; COUNT=5000 SEED=0
	@tools/setup test
	PYTHONPATH=tests .venv/bin/python -m support.nova_differential --count $(COUNT) --seed $(SEED)

audit: ## known faults of the locked packages, from PyPI; before each release
	@tools/setup release
	@for file in tools/locks/*.txt; do .venv/bin/python -m pip_audit --strict --require-hashes --disable-pip -r "$$file" || exit 1; done

dist: ## all distributions, built and checked, in dist
	@tools/setup release
	@rm -rf dist
	@for part in . demo weigher; do .venv/bin/uv build --quiet --out-dir dist $$part || exit 1; done
	@.venv/bin/python -m twine check --strict dist/*.whl dist/*.tar.gz
	@.venv/bin/python tools/collection --build dist

collection: ## the Ansible collection as a tarball in dist, installed from there, with one play on an example host
	@tools/setup test
	@.venv/bin/python tools/collection --build dist
	$(PYTEST) -q tests/unit/test_collection.py

sanity: ## ansible-test sanity on the collection; ONLY="pylint import"
	@tools/setup test
	@.venv/bin/python tools/sanity $(ONLY)

offline: dist ## one archive in dist that installs on a machine without network: wheels, collection, SBOM, checksums
	@tools/setup release
	@PYTHONPATH=. .venv/bin/python tools/offline dist

containers: ## container image and execution environment from dist, on BASE=IMAGE@sha256:DIGEST, as OCI archives with SBOMs
	@tools/setup release
	@tools/setup --apt buildah crun
	@PYTHONPATH=. .venv/bin/python tools/images --base "$(or $(BASE),$(error set BASE))" --revision "$(or $(REVISION),unknown)" dist

release-notes: ## the head of CHANGELOG.md, which the release's page shows, into docs/_build
	@tools/setup
	@mkdir -p docs/_build
	@.venv/bin/python tools/release --notes >docs/_build/release-notes.md

release-check: ## whether TAG is the version and the head of CHANGELOG.md
	@tools/setup
	@.venv/bin/python tools/release --check $(or $(TAG),$(error set TAG))

bench: ## the figures that the documentation claims, as ratios beside their limits; ONLY="render startup"
	@tools/setup test
	@.venv/bin/python bench/run.py $(ONLY)

bench-fleet: ## the commands that read snapshots, with 5,000 hosts
	@tools/setup test
	@GPUSTACK_BENCH_HOSTS=5000 .venv/bin/python bench/run.py fleet

.PHONY: help why states demo demo-full test test-packages test-ready test-unit test-nova test-all test-quick test-parts fresh browser image-proof image-parts images day slices soak cleanup-servers walks explore lab attacks branches mutants lint docs lock nova-tables nova-differential audit dist collection sanity offline containers release-notes release-check bench bench-fleet
